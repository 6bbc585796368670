"""Several workers agree on when training ends: `num_episodes` counts episodes."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import numpy as np
import pytest
import torch

from tandem.agents.companion_agents import Devices
from tandem.exploration import GreedyQPolicy
from tests.agents.agents import Clock, Probe


class Workers(Devices):
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


def worker(layout: Workers, lengths: tuple[int, ...]) -> Any:
    """An agent with an environment for each length of episodes."""
    agent = Probe([Clock(length) for length in lengths])
    agent.set(policy=GreedyQPolicy(), pool_size=100, batch=4, update_steps=3, num_updates=1)
    agent._layout = layout
    return agent


def train(agent: Any, **episodes: int) -> Any:
    optimizer = torch.optim.SGD(agent.param, 0.01)
    agent.distributed_training(optimizer, 1, pool_network=False, p=0, **episodes)
    return agent


def test_episodes_of_one_worker_are_counted_one_by_one() -> None:
    agent = train(worker(Workers(), (2, 6)), episodes=2, num_episodes=5)
    # one after steps 2 and 4, two after step 6, one after step 8
    assert (agent.total_episode, len(agent.reward_list)) == (5, 5)
    assert train(agent, episodes=3).total_episode == 8
    assert train(agent, num_episodes=0).total_episode == 8


def test_workers_end_after_the_same_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tandem.backends.torch.TorchBackend.share", lambda _: None, raising=False)
    layout = Workers(2)
    one, other = worker(layout.of_rank(0), (2, 6)), worker(layout.of_rank(1), (5, 5))
    with ThreadPoolExecutor(2) as threads:
        runs = [threads.submit(train, agent, num_episodes=5) for agent in (one, other)]
        assert wait(runs, 60).not_done == set() and [run.exception() for run in runs] == [None] * 2
    # three rounds: of four episodes each (three of two steps, one of six), and of two
    assert (one.total_episode, other.total_episode) == (12, 6)
    assert [agent._assembly.learner.updates for agent in (one, other)] == [3, 3]
