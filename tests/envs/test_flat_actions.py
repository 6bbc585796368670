"""Actions of several axes, of several parts, and of bits: vectors inside, as declared outside."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from scipy import special, stats

import tandem
from tandem import spaces as described
from tandem import trainer
from tandem.envs.factory import spaces_of, vectorize
from tandem.envs.flat_actions import FlatActions
from tandem.math.distributions import Bernoulli, Categorical, Gaussian
from tandem.math.products import Product, for_actions
from tandem.testing.action_games import Parts
from tandem.vector_actions import restored, vector_space

QUIET = {"plots": False, "tensorboard": False, "eval_episodes": 0, "final_episodes": 1}
BOX = spaces.Box(-2, 3, (2, 3), np.float32)
KINDS = {
    "bits": spaces.MultiBinary((2, 3)),
    "box": BOX,
    "number": spaces.Box(-2.0, 3.0, (), np.float32),
    "doubles": spaces.Box(-2, 3, (2, 2), np.float64),
    "choices": spaces.MultiDiscrete([[2, 3], [4, 2]]),
    "dict": spaces.Dict(
        {"go": spaces.Discrete(3, start=2), "arm": BOX, "on": spaces.MultiBinary(2)}
    ),
    "tuple": spaces.Tuple((spaces.Discrete(2), spaces.Dict({"x": spaces.MultiDiscrete([2, 3])}))),
}


class Demanding(gymnasium.Env[Any, Any]):
    """Takes nothing but actions of its space, and ends after ten."""

    def __init__(self, action: Any) -> None:
        self.action_space, self.observation_space = action, spaces.Box(-1, 1, (3,), np.float32)
        self.taken: list[Any] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> Any:
        assert action in self.action_space, f"{action!r} is not in {self.action_space}"
        self.taken.append(action)
        self.t += 1
        return np.full(3, self.t / 10, np.float32), 1.0, self.t >= 10, False, {}


@pytest.mark.parametrize("kind", KINDS)
def test_vectors_become_actions_of_the_space_and_actions_of_the_space_pass(kind) -> None:
    space = KINDS[kind]
    env = FlatActions(Demanding(space))
    leaf = described.action_leaf(env.action_space, {})
    assert len(leaf.shape) == 1 and described.from_json(described.to_json(leaf)) == leaf
    env.reset(seed=0)
    env.action_space.seed(0)
    for _ in range(5):
        vector = np.asarray(env.action_space.sample(), leaf.dtype)
        if leaf.parts:  # choices between two whole numbers are none
            vector = np.rint(vector)
        env.step(vector)
        own = env.unwrapped.taken[-1]
        again = restored(leaf)(np.stack([vector, vector]))
        for one, two in zip(tree(own), tree(again), strict=True):
            np.testing.assert_array_equal(two, np.stack([one, one]))
        env.step(own)
        assert env.unwrapped.taken[-1] is own
    assert spaces_of(lambda: Demanding(space))[1].inner == space


def tree(x: Any) -> list[Any]:
    if isinstance(x, dict):
        return [leaf for key in x for leaf in tree(x[key])]
    return [leaf for part in x for leaf in tree(part)] if isinstance(x, tuple) else [x]


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind, workers",
    [
        pytest.param(
            kind, workers, marks=[pytest.mark.thorough] if workers and kind != "dict" else []
        )
        for workers in (0, 1)
        for kind in KINDS
    ],
)
def test_a_run_trains_evaluates_resumes_and_its_agent_gives_actions_of_the_space(
    kind, workers, tmp_path
) -> None:
    space, obs = KINDS[kind], np.zeros(3, np.float32)

    def begin(name):
        return trainer.session(
            "ppo", lambda: Demanding(space), framework="torch", steps=128, envs=2, rollout=16,
            batch_size=16, hidden=(8,), workers=workers, out=tmp_path / name,
            **{**QUIET, "eval_episodes": 1, "eval_every": 64},
        )  # fmt: skip

    whole = begin("whole")
    for _ in whole.events():
        pass
    broken = begin("broken")
    for event in broken.events():
        if event.env_steps >= 64:
            broken.stop()
    again = trainer.session(resume=tmp_path / "broken", env=lambda: Demanding(space))
    for _ in again.events():
        pass
    one, other = (run.agent().act(obs) for run in (whole, again))
    assert one in space
    for a, b in zip(tree(one), tree(other), strict=True):
        np.testing.assert_array_equal(a, b)
    loaded = tandem.load(tmp_path / "whole", which="last")
    for a, b in zip(tree(loaded.act(obs)), tree(one), strict=True):
        np.testing.assert_array_equal(a, b)
    many = loaded.act(np.zeros((7, 3), np.float32), deterministic=False)
    assert {len(x) for x in tree(many)} == {7}
    tandem.load(tmp_path / "whole", env=lambda: Demanding(space))
    with pytest.raises(tandem.errors.SpaceError, match="actions of the form"):
        tandem.load(tmp_path / "whole", env=lambda: Demanding(spaces.Discrete(7)))


def test_a_box_of_any_shape_is_for_replay_too(tmp_path) -> None:
    for algorithm in ("sac", "td3", "ddpg"):
        result = tandem.train(
            algorithm, lambda: Demanding(BOX), framework="torch", steps=80, learning_starts=20,
            batch_size=8, hidden=(8,), eval_every=0, progress=False,
        )  # fmt: skip
        assert result.agent.act(np.zeros(3, np.float32)) in BOX


def test_a_game_of_parts_is_exactly_resumable_and_known_to_the_checker() -> None:
    from tandem.testing.env_checker import check

    found = list(check(Parts, steps=50))
    assert all(f.verdict != "fault" for f in found), found
    able = next(f.text for f in found if f.what == "algorithms")
    assert "a2c, ppo, trpo" in able
    environments = vectorize(Parts, 2)
    assert environments.action.kind == "dict" and environments.action.shape == (7,)


def test_bits_are_drawn_by_their_probabilities() -> None:
    d, out = Bernoulli(3), np.array([0.5, -1.0, 3.0], np.float32)
    p = special.expit(out)
    drawn = d.sample(out, d.noise(np.random.default_rng(0), (40_000,)))
    np.testing.assert_allclose(drawn.mean(0), p, atol=0.01)
    bits = drawn[:20]
    expected = stats.bernoulli(p).logpmf(bits).sum(1)
    np.testing.assert_allclose(d.log_prob(out, bits), expected, rtol=1e-5)
    np.testing.assert_allclose(d.entropy(out), stats.bernoulli(p).entropy().sum(), rtol=1e-5)
    q = special.expit(out + 0.7)
    kl = (p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))).sum()
    np.testing.assert_allclose(d.kl(out, out + np.float32(0.7)), kl, rtol=1e-4)
    assert d.mode(out).tolist() == [1, 0, 1] and d.mode(out).dtype == np.int8


def test_a_product_is_the_sum_of_its_parts() -> None:
    leaf = described.action_leaf(vector_space(Parts().action_space), {})
    d = for_actions(leaf)
    assert isinstance(d, Product) and d.width == 2 + 2 + 3 + 4 + 2 and d.normal == 2
    rng = np.random.default_rng(0)
    out, old = rng.standard_normal((2, 6, d.width)).astype(np.float32)
    action = d.sample(out, d.noise(rng, (6,)))
    assert action.shape == (6, 7) and action.dtype == np.float32
    normal = np.concatenate([out[:, :2], out[:, 11:]], -1)
    normal_old = np.concatenate([old[:, :2], old[:, 11:]], -1)
    parts = [
        (Gaussian(2), normal, normal_old, action[:, :2]),
        (Bernoulli(2), out[:, 2:4], old[:, 2:4], action[:, 2:4]),
        (Categorical(3), out[:, 4:7], old[:, 4:7], action[:, 4].astype(int)),
        (Categorical(2), out[:, 7:9], old[:, 7:9], action[:, 5].astype(int)),
        (Categorical(2), out[:, 9:11], old[:, 9:11], action[:, 6].astype(int)),
    ]
    np.testing.assert_allclose(
        d.log_prob(out, action), sum(k.log_prob(o, a) for k, o, _, a in parts), rtol=1e-5
    )
    np.testing.assert_allclose(d.entropy(out), sum(k.entropy(o) for k, o, _, _ in parts), rtol=1e-5)
    np.testing.assert_allclose(d.kl(old, out), sum(k.kl(p, o) for k, o, p, _ in parts), rtol=1e-5)
    best = restored(leaf)(d.mode(out))
    assert best["rest"][0].tolist() == (out[:, 4:7].argmax(-1) + 5).tolist()


def test_exports_give_actions_as_the_environment_takes_them(tmp_path) -> None:
    pytest.importorskip("onnx")
    from tandem.errors import NetworkError
    from tandem.onnx_export import to_numpy, to_onnx

    for kind in ("bits", "box", "doubles"):
        result = tandem.train(
            "ppo", lambda kind=kind: Demanding(KINDS[kind]), framework="torch", steps=32, envs=1,
            rollout=16, batch_size=16, hidden=(8,), eval_every=0, progress=False,
        )  # fmt: skip
        assert to_onnx(result.agent, tmp_path / f"{kind}.onnx").verified
    result = tandem.train(
        "ppo", lambda: Demanding(KINDS["dict"]), framework="torch", steps=32, envs=1, rollout=16,
        batch_size=16, hidden=(8,), eval_every=0, progress=False,
    )  # fmt: skip
    with pytest.raises(NetworkError, match="export it to numpy instead"):
        to_onnx(result.agent, tmp_path / "dict.onnx")
    to_numpy(result.agent, tmp_path / "dict.npz")
