"""Actions of several axes, of several parts, and of bits: vectors inside, as declared outside."""

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from scipy import special, stats

import tandem
from tandem import spaces as described
from tandem.envs.factory import spaces_of, vectorize
from tandem.envs.flat_actions import FlatActions
from tandem.errors import NetworkError
from tandem.math.distributions import Bernoulli, Categorical, Gaussian
from tandem.math.products import ProductDistribution, for_actions
from tandem.reports.onnx_export import to_numpy, to_onnx
from tandem.testing.action_games import Parts
from tandem.types import leaves
from tandem.vector_actions import restored, vector_space
from tests.envs.made import Made
from tests.runs.shared import in_parts

QUIET = {"plots": False, "tensorboard": False, "framework": "torch", "hidden": (8,)}
SHORT: Any = {"envs": 2, "rollout": 16, "batch_size": 16}
BOX, SEEN = spaces.Box(-2, 3, (2, 3), np.float32), spaces.Box(-1, 1, (3,), np.float32)
KINDS = dict(
    bits=spaces.MultiBinary((2, 3)),
    box=BOX,
    number=spaces.Box(-2.0, 3.0, (), np.float32),
    doubles=spaces.Box(-2, 3, (2, 2), np.float64),
    choices=spaces.MultiDiscrete([[2, 3], [4, 2]]),
    dict=spaces.Dict({"go": spaces.Discrete(3, start=2), "arm": BOX, "on": spaces.MultiBinary(2)}),
    tuple=spaces.Tuple((spaces.Discrete(2), spaces.Dict({"x": spaces.MultiDiscrete([2, 3])}))),
)


def demanding(action: Any) -> Made:
    return Made(SEEN, action, length=10)


@pytest.mark.parametrize("kind", KINDS)
def test_vectors_become_actions_of_the_space_and_actions_of_the_space_pass(kind) -> None:
    space = KINDS[kind]
    env = FlatActions(demanding(space))
    leaf = described.action_leaf(env.action_space, {})
    assert len(leaf.shape) == 1 and described.from_json(described.to_json(leaf)) == leaf
    env.reset(seed=0)
    env.action_space.seed(0)
    for _ in range(5):
        vector = np.asarray(env.action_space.sample(), leaf.dtype)
        if leaf.parts:  # choices between two whole numbers are none
            vector = np.rint(vector)
        env.step(vector)
        own = env.unwrapped.log[-1][1][-1]
        again = restored(leaf)(np.stack([vector, vector]))
        for one, two in zip(leaves(own), leaves(again), strict=True):
            np.testing.assert_array_equal(two, np.stack([one, one]))
        env.step(own)
        assert env.unwrapped.log[-1][1][-1] is own
    assert spaces_of(lambda: demanding(space))[1].inner == space


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind, workers",
    [
        *((kind, 0) for kind in KINDS),
        ("dict", 1),
        *(pytest.param(k, 1, marks=pytest.mark.thorough) for k in KINDS if k != "dict"),
    ],
)
def test_a_run_trains_evaluates_and_resumes_and_its_agent_acts(kind, workers, tmp_path) -> None:
    make, obs = lambda: demanding(KINDS[kind]), np.zeros(3, np.float32)
    given = {"eval_episodes": 1, "final_episodes": 1, "eval_every": 64, "workers": workers}
    given |= QUIET | SHORT
    in_parts(tmp_path, "ppo", make, 64, steps=128, **given)
    loaded = tandem.load(tmp_path / "whole", which="last")
    assert loaded.act(obs) in KINDS[kind]
    many = loaded.act(np.zeros((7, 3), np.float32), deterministic=False)
    assert {len(x) for x in leaves(many)} == {7}
    tandem.load(tmp_path / "whole", env=make)
    with pytest.raises(tandem.errors.SpaceError, match="actions of the form"):
        tandem.load(tmp_path / "whole", env=lambda: demanding(spaces.Discrete(7)))


def trained(algorithm: str, kind: str, **given: Any) -> Any:
    make = lambda: demanding(KINDS[kind])  # noqa: E731
    return tandem.train(algorithm, make, eval_every=0, progress=False, **QUIET, **given).agent


def test_a_box_of_any_shape_is_for_replay_too() -> None:
    for algorithm in ("sac", "td3", "ddpg"):
        agent = trained(algorithm, "box", steps=80, learning_starts=20, batch_size=8)
        assert agent.act(np.zeros(3, np.float32)) in BOX


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
    assert isinstance(d, ProductDistribution) and d.width == 2 + 2 + 3 + 4 + 2 and d.normal == 2
    rng = np.random.default_rng(0)
    out, old = rng.standard_normal((2, 6, d.width)).astype(np.float32)
    action = d.sample(out, d.noise(rng, (6,)))
    assert action.shape == (6, 7) and action.dtype == np.float32
    normal = [0, 1, 11, 12]
    parts = [
        (Gaussian(2), normal, action[:, :2]),
        (Bernoulli(2), slice(2, 4), action[:, 2:4]),
        (Categorical(3), slice(4, 7), action[:, 4].astype(int)),
        (Categorical(2), slice(7, 9), action[:, 5].astype(int)),
        (Categorical(2), slice(9, 11), action[:, 6].astype(int)),
    ]
    for found, expected in (
        (d.log_prob(out, action), [k.log_prob(out[:, s], a) for k, s, a in parts]),
        (d.entropy(out), [k.entropy(out[:, s]) for k, s, _ in parts]),
        (d.kl(old, out), [k.kl(old[:, s], out[:, s]) for k, s, _ in parts]),
    ):
        np.testing.assert_allclose(found, sum(expected), rtol=1e-5)
    best = restored(leaf)(d.mode(out))
    assert best["rest"][0].tolist() == (out[:, 4:7].argmax(-1) + 5).tolist()


def test_exports_give_actions_as_the_environment_takes_them(tmp_path) -> None:
    pytest.importorskip("onnx")
    for kind in ("bits", "box", "doubles", "dict"):
        agent = trained("ppo", kind, steps=32, **SHORT)
        if kind != "dict":
            assert to_onnx(agent, tmp_path / f"{kind}.onnx").verified
    with pytest.raises(NetworkError, match="export it to numpy instead"):
        to_onnx(agent, tmp_path / "dict.onnx")
    to_numpy(agent, tmp_path / "dict.npz")
