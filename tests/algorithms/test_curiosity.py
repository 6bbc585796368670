"""Random network distillation: its numbers, its rewards against a slow reference in float64, its
runs, what it finds, and what it does not go with."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import tandem
from tandem import trainer
from tandem.algorithms.curiosity import CLIP, Curiosity, following, input_of, picture
from tandem.algorithms.ppo import PPO
from tandem.envs.team import Team
from tandem.learning.compiled import choice
from tandem.learning.config import Options
from tandem.learning.events import EpisodeEnd
from tandem.spaces import Leaf, leaf
from tandem.testing import contracts, fakes
from tandem.testing.environments import Chain, IdentityDict, IdentityImage
from tandem.testing.locks import Lock
from tandem.testing.team_games import TwoStep
from tandem.types import Cuts, Trajectory
from tests.advice.net import follows
from tests.runs.shared import in_parts
from tests.test_trainer import SMALL

RND: dict[str, Any] = {"intrinsic": "rnd", "rnd_features": 8}
THREE: dict[str, Any] = {"envs": 3, "rollout": 6}
CHECK = "algorithms/curiosity.py:check"
ODD = "algorithms/curiosity.py:check 2"


def built(spec: Any = fakes.VECTOR, name: str = "ppo", **given: Any) -> tuple[Any, Any]:
    """The algorithm, and its networks as functions of arrays."""
    algorithm, backend = fakes.build(name, "torch", fakes.DISCRETE, spec, **THREE, **given)
    return algorithm, {n: net.predict for n, net in backend.networks.items()}


# Numbers


# Rewards


def trajectory(rng: np.random.Generator, steps: int = 6, envs: int = 3) -> Trajectory:
    """With a cut episode, a terminated one whose last observation is apart, and a step that only
    reset an environment."""
    shape = (steps, envs)
    last, discount = np.zeros(shape, bool), np.full(shape, 0.9, np.float32)
    last[1, 0] = last[3, 1] = last[steps - 1, 2] = last[2, 2] = True
    discount[3, 1] = 0.0
    valid = np.ones(shape, bool)
    valid[3, 2] = False
    at = np.array([1, 3, steps - 1]), np.array([0, 1, 2])
    obs = rng.normal(3.0, 2.0, (*shape, 4)).astype(np.float32)
    action, reward = rng.integers(2, size=shape), rng.normal(size=shape).astype(np.float32)
    cuts = Cuts(*at, rng.normal(3.0, 2.0, (3, 4)).astype(np.float32))
    end = rng.normal(3.0, 2.0, (envs, 4)).astype(np.float32)
    return Trajectory(obs, action, reward, discount, last, valid, cuts, end)


def test_what_followed_is_the_last_observation_of_an_episode_too() -> None:
    t = trajectory(np.random.default_rng(0))
    found = following(t)
    assert (found[1, 0] == t.cuts.obs[0]).all() and (found[5, 2] == t.cuts.obs[2]).all()
    assert (found[2, 2] == t.obs[3, 2]).all(), "the observation of the step that only resets"
    assert (found[5, 0] == t.bootstrap[0]).all() and (found[0] == t.obs[1]).all()
    whole = t._replace(cuts=Cuts(np.empty(0, int), np.empty(0, int), np.empty((0, 4), np.float32)))
    assert (following(whole)[:-1] == t.obs[1:]).all()


def slowly(s: Any, t: Trajectory, networks: Any, history: list[Any]) -> dict[str, Any]:
    """The second value's advantages and returns, one number at a time; history: what all rollouts
    up to this one saw (rows), and the intrinsic returns so far, by time and environment."""
    steps, envs = t.reward.shape
    after = following(t)
    seen = history[0]
    seen += [after[i, n].astype(float) for i in range(steps) for n in range(envs) if t.valid[i, n]]
    mean, deviation = np.mean(seen, 0), np.sqrt(np.var(seen, 0) + 1e-8)
    reward = np.zeros((steps, envs))
    for i in range(steps):
        for n in range(envs):
            x = np.clip((after[i, n] - mean) / deviation, -CLIP, CLIP).astype(np.float32)[None]
            error = (networks["rnd"](x) - networks["rnd_target"](x))[0].astype(float)
            reward[i, n] = np.mean(error**2) if t.valid[i, n] else 0.0
            history[2][n] = history[2][n] * s.intrinsic_gamma + reward[i, n]
            if t.valid[i, n]:
                history[1].append(history[2][n])
    reward /= np.sqrt(np.var(history[1]) + 1e-8)
    value = [[float(networks["critic"](t.obs[i, n][None])[0, 1]) for n in range(envs)]
             for i in range(steps)]  # fmt: skip
    value.append([float(networks["critic"](x[None])[0, 1]) for x in t.bootstrap])
    advantage = np.zeros((steps + 1, envs))
    for i in reversed(range(steps)):
        for n in range(envs):  # in whichever episode
            delta = reward[i, n] + s.intrinsic_gamma * value[i + 1][n] - value[i][n]
            advantage[i, n] = delta + s.intrinsic_gamma * s.gae_lambda * advantage[i + 1, n]
    return {"advantage": advantage[:-1].reshape(-1), "value": np.reshape(value[:-1], -1)}


@pytest.mark.parametrize("name", ["ppo", "a2c"])
def test_rewards_and_advantages_are_those_of_a_slow_reference(name: str) -> None:
    given = {**RND, "intrinsic_weight": 0.7, "intrinsic_gamma": 0.8}
    algorithm, networks = built(name=name, gae_lambda=0.9, **given)
    plain, _ = built(name=name, gae_lambda=0.9)
    alone = {"actor": networks["actor"], "critic": lambda x: networks["critic"](x)[:, :1]}
    rng, history = np.random.default_rng(1), [[], [], np.zeros(3)]
    for far in (0.0, 0.0, 1e3):  # statistics go on from rollout to rollout
        t = trajectory(rng)
        t.obs[3, 0] += far  # so that it is clipped
        batch, first = algorithm.prepare(t, networks), plain.prepare(t, alone)
        expected = slowly(algorithm.settings, t, networks, history)
        both = 2.0 * first.extra["advantage"] + 0.7 * expected["advantage"]
        assert batch.extra["advantage"] == pytest.approx(both, abs=2e-5)
        for what in ("value", "return"):
            own = expected["value"] + (expected["advantage"] if what == "return" else 0)
            assert batch.extra[what][:, 0] == pytest.approx(first.extra[what], abs=1e-5)
            assert batch.extra[what][:, 1] == pytest.approx(own, abs=2e-5)
        assert (abs(batch.extra["followed"]).max() == CLIP) == (far > 0)
        assert (batch.extra["features"] == networks["rnd_target"](batch.extra["followed"])).all()
    assert len(set(batch.extra["draw"].tolist())) == 18


def test_symbols_dicts_and_masks_are_numbers() -> None:
    for env in (Chain, IdentityDict):
        made = trainer.session("ppo", env, framework="torch", **SMALL, **RND)
        assert isinstance(made.algorithm.curiosity, Curiosity)
        assert env is IdentityDict or made.algorithm.curiosity.width == 5
        list(made.events(32))
    masked = fakes.build("ppo", "torch", fakes.MASKED, fakes.MASKED_VECTOR, **RND)[0]
    assert masked.curiosity.width == 4, "the mask is nothing to be curious about"


def test_of_a_stack_of_pictures_the_newest_counts_its_channels_last() -> None:
    stack = Leaf("box", (4, 5, 6), "uint8", stack=4)
    x = np.arange(2 * 4 * 5 * 6).reshape(2, 4, 5, 6)
    found = picture(stack, x)
    assert found.shape == (2, 5, 6, 1) and (found[..., 0] == x[:, -1]).all()
    assert (picture(Leaf("box", (3, 5, 6), "uint8"), x[:, :3])[1, 4, 5] == x[1, :3, 4, 5]).all()
    assert picture(Leaf("box", (5, 6, 3), "uint8"), np.zeros((2, 5, 6, 3))).shape == (2, 5, 6, 3)
    assert input_of(stack).shape == (5, 6, 1)


def test_pictures_are_standardized_pixel_by_pixel() -> None:
    leaf = Leaf("box", (36, 36, 1), "uint8", (), (0.0,) * 1296, (255.0,) * 1296)
    algorithm, networks = built(leaf, **RND)
    rng, t = np.random.default_rng(0), trajectory(np.random.default_rng(0))
    shapes = {"obs": (6, 3), "bootstrap": (3,), "cuts": (3,)}
    seen = {n: rng.integers(256, size=(*s, 36, 36, 1)).astype("uint8") for n, s in shapes.items()}
    t = t._replace(**{**seen, "cuts": t.cuts._replace(obs=seen["cuts"])})
    batch = algorithm.prepare(t, networks)
    rows = following(t).reshape(18, -1).astype(float)
    counted = rows[t.valid.reshape(-1)]
    expected = (rows - counted.mean(0)) / np.sqrt(counted.var(0) + 1e-8)
    found = batch.extra["followed"].reshape(18, -1) / 255
    assert found == pytest.approx(np.clip(expected, -CLIP, CLIP), abs=1e-4)


def test_the_predictor_learns_and_the_random_network_does_not() -> None:
    loop = contracts.begin(PPO, Chain, "torch", steps=2_048, rollout=32, learning_rate=1e-3, **RND)
    target = contracts.weights(loop)
    metrics = contracts.train(loop)
    assert metrics[-1]["prediction_error"] < 0.3 * metrics[0]["prediction_error"]
    after = contracts.weights(loop)
    same = {n for n in after if after[n].tobytes() == target[n].tobytes()}
    assert {n.split("/")[0] for n in same} == {"rnd_target"}


# Runs


@pytest.mark.parametrize("name", ["ppo", "a2c"])
def test_runs_are_resumed_exactly_and_take_workers(name: str, tmp_path: Path) -> None:
    given = {n: x for n, x in SMALL.items() if name == "ppo" or n not in ("epochs", "batch_size")}
    given |= {**RND, "framework": "torch", "steps": 128}
    in_parts(tmp_path, name, "CartPole-v1", 64, **given)
    assert tandem.load(tmp_path / "parts").act(np.zeros(4, np.float32)) in (0, 1)
    if name == "ppo":
        given |= {"workers": 1, "envs": 2, "vectorization": "auto"}
        assert tandem.train(name, "CartPole-v1", **given).reason == "steps"


def found_by(intrinsic: str, steps: int) -> list[int]:
    """The steps at which the lock was opened."""
    at = []

    def note(event: object) -> None:
        if isinstance(event, EpisodeEnd) and event.episode.score > 0:
            at.append(event.env_steps)

    learning = {"rollout": 64, "batch_size": 128, "epochs": 4, "learning_rate": 1e-3, "envs": 8}
    quiet = {"plots": False, "eval_episodes": 0, "final_episodes": 2, "framework": "torch"}
    given = {**learning, **quiet, "hidden": (32,), "steps": steps, "callbacks": [note]}
    given |= {"rnd_features": 16} if intrinsic == "rnd" else {}
    result = tandem.train("ppo", Lock, intrinsic=intrinsic, **given)
    assert not at or result.evaluation.mean == 1.0
    return at


@pytest.mark.slow
def test_it_finds_what_chance_does_not() -> None:
    assert found_by("no", 20_000) == []
    assert len(found_by("rnd", 20_000)) > 100


# What it does not go with


class Beside(gymnasium.ObservationWrapper[Any, Any, Any]):
    """A picture, and a number beside it."""

    def __init__(self) -> None:
        super().__init__(IdentityImage())
        number = spaces.Box(0, 1, (1,), np.float32)
        self.observation_space = spaces.Dict({"picture": self.env.observation_space, "n": number})

    def observation(self, observation: Any) -> Any:
        return {"picture": observation, "n": np.zeros(1, np.float32)}


def start(name: str = "ppo", env: Any = "CartPole-v1", **given: Any) -> None:
    small = SMALL if name == "ppo" else {n: SMALL[n] for n in ("envs", "rollout", "hidden")}
    trainer.session(name, env, framework="torch", **{**small, **given})


@pytest.mark.parametrize(
    "name, key, given, then",
    [
        ("a2c", CHECK, {**RND, "shared": True}, {"shared": False}),
        ("ppo", CHECK, {**RND, "recurrent": 4}, {"recurrent": 0}),
        ("ppo", CHECK, {**RND, "value_norm": "norm"}, {"value_norm": "no"}),
        ("ppo", ODD, {**RND, "env": Beside}, {"intrinsic": "no", "rnd_features": 512}),
        ("a2c", ODD, {**RND, "env": Beside}, {"env": IdentityImage}),
    ],
)
def test_what_it_does_not_go_with_is_told(name: str, key: str, given: Any, then: Any) -> None:
    with follows(key) as advice:
        start(name, **given)
    for what, value in then.items():
        assert f"{what}={value!r}" in advice.fix or what in ("rnd_features", "env")
    start(name, **{**given, **then})


def test_teams_and_compiled_runs_refuse_it() -> None:
    small = {"envs": 2, "rollout": 8, "batch_size": 16, "hidden": (8,), "framework": "torch"}
    with follows("refuse_lacking") as advice:
        trainer.session("mappo", lambda: Team(TwoStep()), **small, **RND)
    assert advice.fix == "give intrinsic='no'."
    trainer.session("mappo", lambda: Team(TwoStep()), **small)
    settings, options = PPO.Settings(**RND, vectorization="compiled"), Options()
    action = leaf(spaces.Discrete(2))
    with follows("learning/compiled/choice.py:check 2") as advice:
        choice.check("tandem/CartPole-v1", True, PPO, settings, options, action)
    assert "intrinsic='no'" in advice.fix
    choice.check("tandem/CartPole-v1", True, PPO, PPO.Settings(), options, action)


def test_the_lock_is_what_it_says() -> None:
    env: gymnasium.Env[Any, Any] = Lock(5)
    env.reset(seed=0)
    *_, (obs, _, terminated, *_) = steps = [env.step(a) for a in Lock(5).combination[:4]]
    assert terminated and sum(step[1] for step in steps) == Lock.optimum and obs == 4
    env.reset(seed=0)
    obs = [env.step(action)[0] for action in (0, 0, 1)][-1]  # the third is wrong
    assert obs in (0, 1) and Lock(5).value(0.5) == 0.125
