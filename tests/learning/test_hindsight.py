"""Hindsight replay at the trainer door, in a game that is not learned without it."""

from __future__ import annotations

import numpy as np
import pytest

import tandem
from tandem.errors import SettingError
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
def test_what_terminated_keeps_its_goal_and_its_end(strategy) -> None:
    """Nothing is kept of what was seen after it: what stands there is of the next episode."""
    run = ran(1500, hindsight=strategy, out=None, epsilon=1.0, env=lambda: BitFlip(3))
    learner = run.loop.learner
    ids = learner.sampler.draw(np.random.default_rng(0), 1, 4000).ids
    plain, batch = learner.ring.transitions(ids), learner._batch(ids, ())
    ended = plain.discount == 0
    assert ended.sum() > 100 and (batch.discount[ended] == 0).all()
    np.testing.assert_array_equal(batch.reward[ended], plain.reward[ended])
    flipped = (batch.obs["observation"] != batch.next_obs["observation"]).sum(-1)
    relabelled = (batch.obs["desired_goal"] != plain.obs["desired_goal"]).any(-1)
    assert relabelled.sum() > 500 and (flipped[relabelled] == 1).all()


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


class NeedsInfo(BitFlip):
    def compute_reward(self, achieved, desired, info):
        return info["scale"] * super().compute_reward(achieved, desired, info)


class OneAtATime(BitFlip):
    def compute_reward(self, achieved, desired, info):
        return -float(np.any(achieved != desired))


@pytest.mark.parametrize(
    "kind, told",
    [(NeedsInfo, "raises KeyError: 'scale'"), (OneAtATime, r"gives \(\) rewards")],
)
def test_rewards_that_are_not_of_batches_are_refused_before_a_step(kind, told: str) -> None:
    with pytest.raises(SettingError, match=rf"compute_reward .*{told}.* for two goals"):
        tandem.session("dqn", lambda: kind(4), steps=400, **SHORT, hindsight="future")
    tandem.session("dqn", lambda: kind(4), steps=400, **SHORT)
