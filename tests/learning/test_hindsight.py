"""Hindsight replay at the trainer door, in a game that is not learned without it."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from gymnasium import spaces

import tandem
from tandem.errors import EnvironmentFault, SettingError
from tandem.testing.environments import Game
from tandem.testing.goal_games import BitFlip
from tandem.types import tree_map

SHORT = {
    "framework": "torch",
    "compile": "no",
    "eval_every": 0,
    "hidden": (32,),
    "learning_starts": 50,
    "buffer_size": 2000,
    "batch_size": 16,
    "train_every": 4,
}


def game() -> BitFlip:
    return BitFlip(8)


def ran(steps: int = 400, env=game, **more):
    run = tandem.session("dqn", env, steps=steps, **SHORT | {"hindsight": "future"} | more)
    for _ in run:
        pass
    return run


def weights(run) -> dict:
    return run.backend.networks["q"].read()


@pytest.mark.slow
def test_bits_are_flipped_with_hindsight_only() -> None:
    found = {}
    for hindsight in ("no", "future"):
        run = ran(
            4000,
            hindsight=hindsight,
            hidden=(64,),
            learning_rate=1e-3,
            batch_size=64,
            train_every=2,
            target_every=200,
            learning_starts=200,
            epsilon="1:0.1:0.5",
            gamma=0.9,
            out=None,
        )
        found[hindsight] = tandem.evaluate(run.agent(), game, episodes=100).mean
    assert found["no"] < -7.5 and found["future"] > -3.6  # -8: never; -3: as few as there can be


@pytest.mark.parametrize("k", [1, 4])
def test_transitions_are_given_goals_that_were_reached(k) -> None:
    learner = ran(relabel=k, out=None).loop.learner
    ids = learner.sampler.draw(np.random.default_rng(0), 1, 4000).ids
    plain = learner.ring.transitions(ids)
    batch = learner._batch(ids, ())
    other = (batch.obs["desired_goal"] != plain.obs["desired_goal"]).any(-1)
    assert other.mean() == pytest.approx(k / (k + 1), abs=0.06)
    arrived = (batch.next_obs["achieved_goal"] == batch.next_obs["desired_goal"]).all(-1)
    alive = batch.discount > 0
    assert (batch.reward[other] == -(~arrived[other]).astype(np.float32)).all()
    assert (alive[other] != arrived[other]).all() and arrived[other].mean() > 0.2
    tree_map(lambda x, y: np.testing.assert_array_equal(x[~other], y[~other]), batch.obs, plain.obs)


@pytest.mark.parametrize("strategy", ["future", "final", "episode"])
def test_what_terminated_is_relabeled_and_remains_an_end(strategy) -> None:
    run = ran(1500, hindsight=strategy, out=None, epsilon=1.0, env=lambda: BitFlip(3))
    learner = run.loop.learner
    ids = learner.sampler.draw(np.random.default_rng(0), 1, 4000).ids
    plain, batch = learner.ring.transitions(ids), learner._batch(ids, ())
    ended = plain.discount == 0
    assert ended.sum() > 100 and (batch.discount[ended] == 0).all()
    flipped = (batch.obs["observation"] != batch.next_obs["observation"]).sum(-1)
    assert (flipped == 1).all()  # the true last observation follows, not the next episode's first
    relabeled = (batch.obs["desired_goal"] != plain.obs["desired_goal"]).any(-1)
    assert relabeled.sum() > 500
    arrived = (batch.next_obs["achieved_goal"] == batch.next_obs["desired_goal"]).all(-1)
    assert (batch.reward == -(~arrived).astype(np.float32)).all()
    # of an end there is another goal only where earlier ones of the episode are goals, too
    assert (relabeled & ended).any() == (strategy == "episode")


@pytest.mark.slow
@pytest.mark.parametrize("more", [{}, {"prioritized": True}, {"workers": 2, "envs": 2}])
def test_a_run_goes_on_exactly(tmp_path, more) -> None:
    whole = weights(ran(out=tmp_path / "whole", **more))
    given = SHORT | {"hindsight": "future"} | more
    half = tandem.session("dqn", game, steps=400, out=tmp_path / "half", **given)
    for event in half:
        if event.env_steps >= 200:
            half.stop()
    rest = tandem.session(env=game, resume=tmp_path / "half")
    for _ in rest:
        pass
    found = weights(rest)
    assert all(np.array_equal(found[n], whole[n]) for n in whole)
    assert not all(np.array_equal(weights(half)[n], whole[n]) for n in whole)


def test_only_single_steps_are_given_other_goals() -> None:
    with pytest.raises(SettingError, match=r"hindsight='future' and n_step=3"):
        ran(n_step=3, out=None)


class Lock(Game):
    """Enter a code of `digits` digits, each of `base`: 0 where it is the goal, else -1. The episode
    terminates with the last digit, and only then is anything achieved."""

    def __init__(self, digits: int, base: int) -> None:
        self.digits, self.base, self.length = digits, base, digits + 1
        box = spaces.Box(0.0, 1.0, (digits * base,), np.float32)
        names = ("observation", "achieved_goal", "desired_goal")
        self.observation_space = spaces.Dict(dict.fromkeys(names, box))
        self.action_space = spaces.Discrete(base)

    def begin(self) -> None:
        digits = self.np_random.integers(0, self.base, self.digits)
        self.goal = np.eye(self.base, dtype=np.float32)[digits].ravel()
        self.entered = np.zeros((self.digits, self.base), np.float32)

    def play(self, action):
        self.entered[self.t - 1, action] = 1.0
        over = self.t == self.digits
        return float(self.compute_reward(self.observe()["achieved_goal"], self.goal, {})), over

    def observe(self):
        entered = self.entered.ravel()
        achieved = entered * (entered.sum() == self.digits)
        return {"observation": entered, "achieved_goal": achieved, "desired_goal": self.goal}

    def compute_reward(self, achieved, desired, info):
        return -(achieved != desired).any(-1).astype(np.float32)


@pytest.mark.parametrize("digits, base", [(1, 40), (2, 7)])
def test_games_that_terminate_are_learned_with_hindsight_only(digits: int, base: int) -> None:
    """One step, or two: without the last one there would be no goal at all."""
    found = {}
    for hindsight in ("no", "future"):
        run = ran(
            1500,
            lambda: Lock(digits, base),
            hindsight=hindsight,
            hidden=(64,),
            learning_rate=3e-3,
            batch_size=64,
            target_every=100,
            learning_starts=200,
            epsilon="1:0.2:0.5",
            gamma=0.9,
            out=None,
        )
        found[hindsight] = tandem.evaluate(run.agent(), lambda: Lock(digits, base), episodes=60)
    # of the last digit: what is paid before is -1 in any case
    score = {name: played.mean + digits - 1 for name, played in found.items()}
    assert score["no"] < -0.5 and score["future"] > -0.2, score


KIND = {"kind": "breeze"}


class Scaled(BitFlip):
    """Rewards are scaled by the step's wind, which `info` has."""

    def step(self, action):
        obs, _, terminated, truncated, _ = super().step(action)
        wind = self.np_random.uniform(1, 2)
        reward = float(self.compute_reward(obs["achieved_goal"], self.goal, {"wind": wind, **KIND}))
        return obs, reward, terminated, truncated, {"wind": wind, **KIND}

    def play(self, action):
        self.state[int(action)] = 1.0 - self.state[int(action)]
        return 0.0, bool((self.state == self.goal).all())


class ByName(Scaled):
    def compute_reward(self, achieved, desired, info):
        return super().compute_reward(achieved, desired, info) * info.get("wind", 1.0)


class Rows(Scaled):
    """As Stable-Baselines3 has it: a list of the rows' infos."""

    def compute_reward(self, achieved, desired, info):
        reward = super().compute_reward(achieved, desired, info)
        wind = info["wind"] if np.ndim(reward) == 0 else [x["wind"] for x in info]
        return reward * np.array(wind)


@pytest.mark.parametrize("kind, workers", [(ByName, 0), (Rows, 0), (ByName, 1)])
def test_stored_info_is_passed_to_compute_reward(kind, workers, tmp_path) -> None:
    more = {"copy_info": True, "workers": workers, "envs": 2, "epsilon": 1.0}
    run = ran(300, partial(kind, 4), out=tmp_path / "run", **more)
    learner = run.loop.learner
    wind = learner.ring.column("extra/info/wind")
    ids = learner.sampler.draw(np.random.default_rng(0), 1, 500).ids
    batch = learner._batch(ids, ())
    assert not batch.extra and wind.dtype == np.float64
    arrived = (batch.next_obs["achieved_goal"] == batch.next_obs["desired_goal"]).all(-1)
    expected = np.where(arrived, 0.0, -wind[learner.ring.position(ids)]).astype(np.float32)
    np.testing.assert_array_equal(batch.reward, expected)
    with pytest.raises(SettingError, match=r"(?s)reads info.*copy_info=True"):
        ran(300, partial(kind, 4), out=None)
    again = tandem.session(env=partial(kind, 4), resume=tmp_path / "run").loop.learner.ring
    np.testing.assert_array_equal(again.column("extra/info/wind"), wind)


class Reads(Scaled):
    def compute_reward(self, achieved, desired, info):
        return super().compute_reward(achieved, desired, info) * (info["kind"] == "breeze")


class Now(Scaled):
    def step(self, action):
        *rest, info = super().step(action)
        return *rest, info if self.t % 2 else {}


class Later(Scaled):
    """An int at first, then floats, which an int64 column would cut to 0."""

    def step(self, action):
        *rest, info = super().step(action)
        return *rest, {**info, "wind": 1 if self.t == 1 else 0.5}


def test_info_that_cannot_be_stored_is_named() -> None:
    with pytest.raises(SettingError, match=r"reads info\['kind'\], which is not stored"):
        ran(300, lambda: Reads(4), copy_info=True, out=None)
    with pytest.raises(EnvironmentFault, match=r"info\['wind'\] = None at step 2"):
        ran(300, lambda: Now(4), copy_info=True, out=None)
    with pytest.raises(EnvironmentFault, match=r"(?s)info\['wind'\] = 0\.5 .*int64 of shape \(\)"):
        ran(300, lambda: Later(4), copy_info=True, out=None)


class NeedsInfo(BitFlip):
    def compute_reward(self, achieved, desired, info):
        return info["scale"] * super().compute_reward(achieved, desired, info)


class OneAtATime(BitFlip):
    def compute_reward(self, achieved, desired, info):
        return -float(np.any(achieved != desired))


@pytest.mark.parametrize(
    "kind, told",
    [
        (NeedsInfo, r"reads info\['scale'\], which is not stored"),
        (OneAtATime, r"gives \(\) rewards .* for two goals"),
    ],
)
def test_rewards_that_are_not_of_batches_are_refused_before_a_step(kind, told: str) -> None:
    with pytest.raises(SettingError, match=rf"compute_reward .*{told}"):
        tandem.session("dqn", lambda: kind(4), steps=400, **SHORT, hindsight="future")
    tandem.session("dqn", lambda: kind(4), steps=400, **SHORT)
