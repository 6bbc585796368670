"""Callbacks within a training phase: when they are called, what stops it, and how it continues."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tandem.agents.rl import LambdaCallback
from tandem.exploration import EpsGreedyQPolicy
from tests.agents.agents import Clock, Probe, Ratio, Walk, alike, same, trained, weights
from tests.agents.test_processes import AGENTS

PHASES: dict[str, Any] = {  # arguments of set with more than one mini-batch in a phase
    "PPO": {"PPO": True, "update_steps": 12},
    "PPO by episodes": {"PPO": True, "update_steps": None, "update_batches": 7},
    "PPO and PR": {"PPO": True, "PR": True, "update_steps": 12},
    "PR": {"PR": True, "num_updates": 5, "update_batches": 3, "update_steps": None},
    "n-step": {"num_updates": 5, "num_steps": 3},
}


IN_PROCESSES = [(kind, 1) for kind in (*PHASES, "hindsight, two optimizers")]
IN_PROCESSES += [("PPO by episodes", 2)]


def made(kind: str) -> Any:
    """A fresh agent in three environments, set, and its optimizers."""
    if kind in PHASES:
        agent = Ratio([Walk() for _ in range(3)])
        choices = {"pool_size": 60, "batch": 6, "update_steps": 3, **PHASES[kind]}
        agent.set(policy=EpsGreedyQPolicy(0.3), **choices)
        return agent, torch.optim.Adam(agent.param)
    return AGENTS[kind]()


def episodes(kind: str) -> int:
    return 6 if kind.startswith("hindsight") else 14


def hears(agent: Any) -> list[Any]:
    heard: list[Any] = []
    begin = lambda b, logs: heard.append(("begin", b, weights(agent)))  # noqa: E731
    end = lambda b, logs: heard.append(("end", b, weights(agent)))  # noqa: E731
    agent.callbacks = [LambdaCallback(on_batch_begin=begin, on_batch_end=end)]
    return heard


def test_a_mini_batch_begins_before_its_update_and_ends_after_it() -> None:
    agent = Probe()
    heard = hears(agent)
    start = weights(agent)
    trained(agent, 4, PPO=True, update_steps=8)
    begins, ends = heard[::2], heard[1::2]
    assert [h[:2] for h in begins] == [("begin", b) for b in range(40)]
    assert [h[:2] for h in ends] == [("end", b) for b in range(40)]
    assert same(begins[0][2], start) and not same(begins[0][2], ends[0][2])
    assert all(same(before[2], now[2]) for before, now in zip(ends, begins[1:], strict=False))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*PHASES, "hindsight, two optimizers", "several agents"])
def test_a_training_that_is_listened_to_is_the_same_to_the_bit(kind: str) -> None:
    (alone, optimizer), (listened, other) = made(kind), made(kind)
    heard, count = hears(listened), episodes(kind) // 2
    alone.train(optimizer, count, p=0)
    listened.train(other, count, p=0)
    assert alike(alone, listened) and len(heard) == 2 * alone._assembly.learner.updates > 0


def stops(agent: Any, when: Any, method: str = "on_batch_end") -> Any:
    """The agent, whose training a callback stops after numbers of which `when` says so."""

    def stop(b: int, logs: Any) -> None:
        agent.stop_training = when(b)

    agent.callbacks = [LambdaCallback(**{method: stop})]
    return agent


@pytest.mark.parametrize("method", ["on_batch_begin", "on_batch_end"])
@pytest.mark.parametrize("at", [0, 3])
def test_it_stops_at_the_next_update(method: str, at: int) -> None:
    agent = stops(Probe(), lambda b: b == at, method)
    trained(agent, 4, PPO=True, update_steps=8)
    assert agent._assembly.learner.updates == at + 1 and agent.copies == []
    assert agent._assembly.loop.env_steps == 8 and agent.reward_list == [15.0]


def test_what_stops_it_outside_a_phase_stops_the_next_one() -> None:
    agent = stops(Probe(), lambda i: i == 1, "on_episode_begin")
    trained(agent, None, PPO=True, update_steps=5)  # a phase at the end of each episode
    assert agent._assembly.learner.updates == 0 and agent.reward_list == [15.0]
    agent.callbacks = []
    agent.train(None, 1, p=0)
    assert agent._assembly.learner.updates == 2 * 12 and agent.reward_list == [15.0, 15.0]


def test_update_param_and_what_changes_batches_may_stop_it() -> None:
    class Enough(Probe):
        def update_param(self) -> None:
            super().update_param()
            self.stop_training = len(self.copies) == 2

    agent = trained(Enough(), None, num_updates=9, update_batches=2)
    assert agent.copies == [2, 4] and agent._assembly.learner.updates == 4


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "processes"), IN_PROCESSES)
def test_a_phase_that_was_stopped_goes_on_to_the_bit(kind: str, processes: int) -> None:
    whole, optimizer = made(kind)
    whole.train(optimizer, episodes(kind), processes=processes, p=0)
    parts, optimizer = made(kind)
    times = 0
    stops(parts, lambda b: b % 11 == 3)
    while len(parts.reward_list) < len(whole.reward_list):
        left = len(whole.reward_list) - len(parts.reward_list)
        parts.train(optimizer, left, processes=processes, p=0)
        times += 1
    parts.callbacks = []
    parts._assembly.learner.go_on()  # of the step at which the last episode ended
    assert times > 3 and same(weights(parts), weights(whole))
    assert parts.reward_list == whole.reward_list


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "processes"), IN_PROCESSES)
def test_a_file_within_a_phase_resumes_exactly(kind: str, processes: int, tmp_path: Path) -> None:
    whole, optimizer = made(kind)
    saved: list[tuple[int, int]] = []  # mini-batch, and episodes until then

    def save(b: int, logs: Any) -> None:
        if b in (4, 17, 31):
            saved.append((b, whole.total_episode))
            whole.save(tmp_path / f"{b}.dat")

    whole.callbacks = [LambdaCallback(on_batch_end=save)]
    whole.train(optimizer, episodes(kind), processes=processes, p=0)
    assert len(saved) > 1
    for b, before in saved:
        again, optimizer = made(kind)
        again.restore(tmp_path / f"{b}.dat")
        again.train(optimizer, len(whole.reward_list) - before, p=0)
        assert alike(again, whole), b


def test_a_callback_that_raises_loses_nothing() -> None:
    whole, optimizer = made("PPO")
    whole.train(optimizer, 8, p=0)
    agent, optimizer = made("PPO")

    def fail(b: int, logs: Any) -> None:
        if b == 5:
            raise ZeroDivisionError("of the callback's own")

    agent.callbacks = [LambdaCallback(on_batch_begin=fail)]
    with pytest.raises(ZeroDivisionError, match="of the callback's own"):
        agent.train(optimizer, 8, p=0)
    agent.callbacks = []
    agent.train(optimizer, len(whole.reward_list) - len(agent.reward_list), p=0)
    assert same(weights(agent), weights(whole)) and agent.reward_list == whole.reward_list


def test_an_emptied_pool_ends_its_phase() -> None:
    agent = stops(Probe(), lambda b: b == 2)
    trained(agent, 4, PPO=True, update_steps=8)
    agent.train(None, 1, save_data=False, p=0)
    assert agent._assembly.learner.updates == 3 and np.isfinite(agent.loss)
    assert len(agent._assembly.learner.ring) < 8 and isinstance(agent.env, Clock)
