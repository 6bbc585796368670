"""Hindsight replay at the trainer door, in a game that is not learned without it."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import tandem
from tandem.errors import EnvironmentFault, SettingError
from tandem.testing.goal_games import BitFlip
from tandem.types import tree_map
from tests.runs.shared import in_parts

SHORT = dict(framework="torch", compile="no", eval_every=0, hidden=(32,), learning_starts=50)
SHORT |= {"buffer_size": 2000, "batch_size": 16, "train_every": 4}


def game() -> BitFlip:
    return BitFlip(8)


def ran(steps: int = 400, env=game, out=None, **more):
    given = SHORT | {"hindsight": "future"} | more
    run = tandem.session("dqn", env, steps=steps, out=out, **given)
    list(run)
    return run


def replayed(run, count: int):
    """(transitions as they are stored, as they are learned from)."""
    learner = run.loop.learner
    ids = learner.sampler.draw(np.random.default_rng(0), 1, count).ids
    return learner.ring.transitions(ids), learner._batch(ids, ()), ids


def arrived_in(batch):
    return (batch.next_obs["achieved_goal"] == batch.next_obs["desired_goal"]).all(-1)


@pytest.mark.parametrize("k", [1, 4])
def test_transitions_are_given_goals_that_were_reached(k) -> None:
    plain, batch, _ = replayed(ran(relabel=k), 4000)
    other = (batch.obs["desired_goal"] != plain.obs["desired_goal"]).any(-1)
    assert other.mean() == pytest.approx(k / (k + 1), abs=0.06)
    arrived, alive = arrived_in(batch), batch.discount > 0
    assert (batch.reward[other] == -(~arrived[other]).astype(np.float32)).all()
    assert (alive[other] != arrived[other]).all() and arrived[other].mean() > 0.2
    tree_map(lambda x, y: np.testing.assert_array_equal(x[~other], y[~other]), batch.obs, plain.obs)


@pytest.mark.parametrize("strategy", ["future", "final", "episode"])
def test_what_terminated_is_relabeled_and_remains_an_end(strategy) -> None:
    run = ran(1500, hindsight=strategy, epsilon=1.0, env=lambda: BitFlip(3))
    plain, batch, _ = replayed(run, 4000)
    ended = plain.discount == 0
    assert ended.sum() > 100 and (batch.discount[ended] == 0).all()
    flipped = (batch.obs["observation"] != batch.next_obs["observation"]).sum(-1)
    assert (flipped == 1).all()  # the true last observation follows, not the next episode's first
    relabeled = (batch.obs["desired_goal"] != plain.obs["desired_goal"]).any(-1)
    assert relabeled.sum() > 500
    assert (batch.reward == -(~arrived_in(batch)).astype(np.float32)).all()
    # of an end there is another goal only where earlier ones of the episode are goals, too
    assert (relabeled & ended).any() == (strategy == "episode")


@pytest.mark.slow
@pytest.mark.parametrize("more", [{}, {"prioritized": True}, {"workers": 2, "envs": 2}])
def test_a_run_goes_on_exactly(tmp_path, more) -> None:
    given = SHORT | {"hindsight": "future"} | more
    in_parts(tmp_path, "dqn", game, 200, steps=400, **given)


def test_only_single_steps_are_given_other_goals() -> None:
    with pytest.raises(SettingError, match=r"hindsight='future' and n_step=3"):
        ran(n_step=3)


@pytest.mark.slow
def test_a_game_is_learned_with_hindsight_only() -> None:
    given = dict(learning_rate=1e-3, train_every=2, target_every=200, epsilon="1:0.1:0.5")
    given |= {"hidden": (64,), "batch_size": 64, "learning_starts": 200, "gamma": 0.9}
    runs = [ran(4000, hindsight=hindsight, **given) for hindsight in ("no", "future")]
    without, score = (tandem.evaluate(run.agent(), game, episodes=100).mean for run in runs)
    assert without < -7.5 and score > -3.6  # -8: never; -3: as few steps as there can be


KIND = {"kind": "breeze"}


class Scaled(BitFlip):
    """Rewards go by the wind in `info`; `judge` and `tell` change rewards and info."""

    def __init__(self, n: int, judge: Any = None, tell: Any = None) -> None:
        super().__init__(n)
        self.judge, self.tell = judge or (lambda reward, info: reward), tell

    def step(self, action):
        obs, _, terminated, truncated, _ = super().step(action)
        info = {"wind": self.np_random.uniform(1, 2), **KIND}
        reward = float(self.compute_reward(obs["achieved_goal"], self.goal, info))
        info = self.tell(self.t, info) if self.tell else info
        return obs, reward, terminated, truncated, info

    def play(self, action):
        self.state[int(action)] = 1.0 - self.state[int(action)]
        return 0.0, bool((self.state == self.goal).all())

    def compute_reward(self, achieved, desired, info):
        return self.judge(super().compute_reward(achieved, desired, info), info)


def by_name(reward, info):
    return reward * info.get("wind", 1.0)


def rows(reward, info):
    """As Stable-Baselines3 has it: a list of the rows' infos."""
    return reward * np.array(info["wind"] if np.ndim(reward) == 0 else [x["wind"] for x in info])


@pytest.mark.parametrize("judge, workers", [(by_name, 0), (rows, 0), (by_name, 1)])
def test_stored_info_is_passed_to_compute_reward(judge, workers, tmp_path) -> None:
    more, env = (
        dict(copy_info=True, workers=workers, envs=2, epsilon=1.0),
        partial(Scaled, 4, judge),
    )
    run = ran(300, env, out=tmp_path / "run", **more)
    _, batch, ids = replayed(run, 500)
    ring = run.loop.learner.ring
    wind = ring.column("extra/info/wind")
    assert not batch.extra and wind.dtype == np.float64
    paid = -wind[ring.position(ids)]
    expected = np.where(arrived_in(batch), 0.0, paid).astype(np.float32)
    np.testing.assert_array_equal(batch.reward, expected)
    with pytest.raises(SettingError, match=r"(?s)reads info.*copy_info=True"):
        ran(300, env)
    again = tandem.session(env=env, resume=tmp_path / "run").loop.learner.ring
    np.testing.assert_array_equal(again.column("extra/info/wind"), wind)


def test_info_that_cannot_be_stored_is_named() -> None:
    def kinds(reward, info):
        return reward * (info["kind"] == "breeze")

    with pytest.raises(SettingError, match=r"reads info\['kind'\], which is not stored"):
        ran(300, lambda: Scaled(4, kinds), copy_info=True)
    # an int at first, then floats, which an int64 column would cut to 0
    for tell, said in (
        (lambda t, info: info if t % 2 else {}, r"info\['wind'\] = None at step 2"),
        (
            lambda t, info: {**info, "wind": 1 if t == 1 else 0.5},
            r"(?s)\['wind'\] = 0\.5 .*int64 of sh.* \(\)",
        ),
    ):
        with pytest.raises(EnvironmentFault, match=said):
            ran(300, partial(Scaled, 4, None, tell), copy_info=True)


@pytest.mark.parametrize(
    "judge, said",
    [
        (
            lambda reward, info: info["scale"] * reward,
            r"reads info\['scale'\], which is not stored",
        ),
        (lambda reward, info: float(np.min(reward)), r"returns \(\) rewards .* for two goals"),
    ],
)
def test_rewards_that_are_not_of_batches_are_refused_before_a_step(judge, said: str) -> None:
    with pytest.raises(SettingError, match=rf"compute_reward .*{said}"):
        tandem.session("dqn", lambda: Scaled(4, judge), steps=400, **SHORT, hindsight="future")
    tandem.session("dqn", lambda: Scaled(4, judge), steps=400, **SHORT)
