"""When training stops and how it continues: by callbacks, and as several workers agree."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tandem.agents.companion_agents import CompanionDevices
from tandem.agents.rl import LambdaCallback
from tests.agents.agents import Clock, Probe, alike, ready, same, trained, weights
from tests.agents.test_processes import AGENTS, walkers

PHASES: dict[str, Any] = {  # arguments of set with more than one minibatch in a phase
    "PPO": {"PPO": True, "update_steps": 12},
    "PPO by episodes": {"PPO": True, "update_steps": None, "update_batches": 7},
    "PPO and PR": {"PPO": True, "PR": True, "update_steps": 12},
    "PR": {"PR": True, "num_updates": 5, "update_batches": 3, "update_steps": None},
    "n-step": {"num_updates": 5, "num_steps": 3},
}
KINDS = [*PHASES, "hindsight, two optimizers", "several agents"]
IN_PROCESSES = [*((kind, 1) for kind in KINDS[:-1]), ("PPO by episodes", 2)]


def made(kind: str) -> Any:
    """A fresh agent in three environments, set, and its optimizers."""
    return walkers(**PHASES[kind]) if kind in PHASES else AGENTS[kind]()


def episodes(kind: str) -> int:
    return 6 if kind.startswith("hindsight") else 14


def hears(agent: Any) -> list[Any]:
    heard: list[Any] = []
    note = lambda name: lambda b, logs: heard.append((name, b, weights(agent)))  # noqa: E731
    agent.callbacks = [LambdaCallback(on_batch_begin=note("begin"), on_batch_end=note("end"))]
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
@pytest.mark.parametrize("kind", KINDS)
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
    (whole, optimizer), (parts, other), times = made(kind), made(kind), 0
    whole.train(optimizer, episodes(kind), processes=processes, p=0)
    stops(parts, lambda b: b % 11 == 3)
    while (left := len(whole.reward_list) - len(parts.reward_list)) > 0:
        parts.train(other, left, processes=processes, p=0)
        times += 1
    parts.callbacks = []
    parts._assembly.learner.go_on()  # of the step at which the last episode ended
    assert times > 3 and same(weights(parts), weights(whole))
    assert parts.reward_list == whole.reward_list


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "processes"), IN_PROCESSES)
def test_a_file_within_a_phase_resumes_exactly(kind: str, processes: int, tmp_path: Path) -> None:
    whole, optimizer = made(kind)
    saved: list[tuple[int, int]] = []  # minibatch, and episodes until then

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
    (whole, optimizer), (agent, other) = made("PPO"), made("PPO")
    whole.train(optimizer, 8, p=0)
    stops(agent, lambda b: b == 5 and 1 / 0, "on_batch_begin")
    with pytest.raises(ZeroDivisionError):
        agent.train(other, 8, p=0)
    agent.callbacks = []
    agent.train(other, len(whole.reward_list) - len(agent.reward_list), p=0)
    assert same(weights(agent), weights(whole)) and agent.reward_list == whole.reward_list


def test_an_emptied_pool_ends_its_phase() -> None:
    agent = stops(Probe(), lambda b: b == 2)
    trained(agent, 4, PPO=True, update_steps=8)
    agent.train(None, 1, save_data=False, p=0)
    assert agent._assembly.learner.updates == 3 and np.isfinite(agent.loss)
    assert len(agent._assembly.learner.ring) < 8 and isinstance(agent.env, Clock)


class Workers(CompanionDevices):
    """A cluster whose workers are threads of this process."""

    by_rounds = True

    def __init__(self, workers: int = 1) -> None:
        super().__init__(1)
        self.workers, self.rank = workers, 0
        self._barrier = threading.Barrier(workers)
        self._rows: list[list[int]] = [[] for _ in range(workers)]

    def of_rank(self, rank: int) -> Workers:
        one = Workers(self.workers)
        one.rank, one._barrier, one._rows = rank, self._barrier, self._rows
        return one

    def gather(self, values: Any) -> Any:
        self._rows[self.rank] = [int(x) for x in values]
        self._barrier.wait(60)
        table = np.array(self._rows)
        self._barrier.wait(60)
        return table


def worker(layout: Workers, *lengths: int) -> Any:
    """An agent with an environment for each length of episodes."""
    agent = ready([Clock(length) for length in lengths], batch=4, update_steps=3, num_updates=1)
    agent._layout = layout
    return agent


def train(agent: Any, **episodes: int) -> Any:
    optimizer = torch.optim.SGD(agent.param, 0.01)
    agent.distributed_training(optimizer, 1, pool_network=False, p=0, **episodes)
    return agent


def test_episodes_of_one_worker_are_counted_one_by_one() -> None:
    agent = train(worker(Workers(), 2, 6), episodes=2, num_episodes=5)
    # one after steps 2 and 4, two after step 6, one after step 8
    assert (agent.total_episode, len(agent.reward_list)) == (5, 5)
    assert train(agent, episodes=3).total_episode == 8
    assert train(agent, num_episodes=0).total_episode == 8


def test_workers_end_after_the_same_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tandem.backends.torch.TorchBackend.share", lambda _: None, raising=False)
    layout = Workers(2)
    one, other = worker(layout.of_rank(0), 2, 6), worker(layout.of_rank(1), 5, 5)
    with ThreadPoolExecutor(2) as threads:
        runs = [threads.submit(train, agent, num_episodes=5) for agent in (one, other)]
        assert wait(runs, 60).not_done == set() and [run.exception() for run in runs] == [None] * 2
    # three rounds: of four episodes each (three of two steps, one of six), and of two
    assert (one.total_episode, other.total_episode) == (12, 6)
    assert [agent._assembly.learner.updates for agent in (one, other)] == [3, 3]
