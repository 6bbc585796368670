"""`train(..., parallel_store_and_training=True)`: environments step while the agent learns."""

import os
import signal
import threading
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from tandem import LambdaCallback
from tandem.agents import train_call
from tandem.envs.stepped import Stepped
from tandem.errors import SettingError
from tandem.exploration import OrnsteinUhlenbeckProcess
from tandem.learning.collect.ahead import AheadCollector
from tandem.learning.collect.collector import Collector
from tandem.learning.parallel.remote import Remote
from tandem.types import leaves
from tests.agents.agents import Clock, Probe, alike, fit, own, ready, resumed
from tests.agents.test_processes import hindsight, probe, several, walkers


class Balance:
    """Acts by the pole's angle, and says so beside."""

    def act(self, obs: Any, state: Any, noise: Any) -> Any:
        return (obs[:, 2] > 0).astype(np.int64), {"angle": obs[:, 2]}, state

    def initial_state(self, n: int) -> Any:
        return ()


def environments(n: int) -> list[Any]:
    return [gymnasium.make("CartPole-v1", max_episode_steps=20) for _ in range(n)]


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_steps_are_those_of_a_collector_that_waits(processes: int) -> None:
    def beside() -> Any:
        apart = Remote("Some", environments(3), 3, processes, beside=True)
        assert len(apart.group.workers) == processes and apart.n == 3
        return AheadCollector(apart, 0.9)

    ahead, again, alone = beside(), beside(), Collector(Stepped("Some", environments(3), 3), 0.9)
    for _ in range(50):
        one, other = ahead.collect(1, Balance()), alone.collect(1, Balance())
        ahead.request(Balance())
        assert all(map(np.array_equal, leaves(one), leaves(other)))
        assert ahead.episodes == alone.episodes and ahead.env_steps == alone.env_steps
    again.load_state(*ahead.state())  # with a step that was under way
    for _ in range(30):
        one, other = again.collect(1, Balance()), ahead.collect(1, Balance())
        again.request(Balance())
        ahead.request(Balance())
        assert all(map(np.array_equal, leaves(one), leaves(other)))
        assert again.episodes == ahead.episodes
    ahead.close()
    again.close()


def trained(kind: Any, episodes: int = 9, seed: int = 5, **more: Any) -> Any:
    agent, optimizer = kind()
    agent.seed = seed
    agent.train(optimizer, episodes, p=0, **more)
    return agent


@pytest.mark.slow
def test_an_agent_that_learns_nothing_plays_as_in_turn() -> None:
    def still() -> Any:
        agent, _ = walkers()
        return agent, torch.optim.SGD(agent.param, 0.0)

    in_turn = trained(still, processes=2)
    beside = trained(still, processes=2, parallel_store_and_training=True)
    assert len(beside._assembly.environments.group.workers) == 2
    assert in_turn.reward_list == beside.reward_list
    a, b = (agent._assembly.learner for agent in (in_turn, beside))
    assert a.updates == b.updates > 0
    seen = [x.ring.transitions(np.arange(x.ring.oldest, x.ring.newest)) for x in (a, b)]
    assert all(map(np.array_equal, leaves(seen[0]), leaves(seen[1])))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [hindsight, several])
def test_it_is_the_same_run_each_time_in_any_number_of_processes(kind: Any) -> None:
    one, two, again = (
        trained(kind, 4, processes=n, parallel_store_and_training=True) for n in (1, 2, 2)
    )
    assert alike(one, two) and alike(two, again) and one.loss_list[-1] != 0


def test_a_team_that_cannot_travel_steps_in_one_process_beside_this_one() -> None:
    agent, optimizer = several()
    agent.lock = threading.RLock()
    agent.train(optimizer, 3, processes=1, parallel_store_and_training=True, p=0)
    assert agent._assembly.beside and len(agent.reward_list) >= 3


class Counted(Clock):
    """Leaves a byte in a file for each step."""

    def step(self, action: Any) -> Any:
        with self.file.open("ab") as file:
            file.write(b".")
        return super().step(action)


@pytest.mark.slow
def test_environments_step_while_the_agent_learns(tmp_path: Path) -> None:
    file, waited = tmp_path / "steps", []

    class Waiting(Probe):
        def update_param(self) -> None:
            before, began = self._assembly.loop.collector.env_steps, time.monotonic()
            # this call's step is there already, so it is the next one that comes meanwhile
            while file.stat().st_size <= before and time.monotonic() - began < 30:
                time.sleep(0.001)
            waited.append(file.stat().st_size > before)

    counted = Counted()
    counted.file = file
    agent = ready(counted, Waiting, batch=2)
    fit(agent, 3, processes=1, parallel_store_and_training=True)
    assert len(waited) > 10 and all(waited)


def test_a_round_is_learned_from_while_the_next_one_is_collected() -> None:
    updates, agent = [], ready(Clock(5), batch=4, num_updates=2)
    note = lambda i, logs: updates.append(agent._assembly.learner.updates)  # noqa: E731
    agent.callbacks = [LambdaCallback(on_episode_end=note)]
    fit(agent, 5, processes=1, parallel_store_and_training=True, num_store=2)
    # rounds of two episodes of 5 steps; of each step comes a phase of two updates, a round later:
    # the first round is over at 2; the second has 10 steps, the first 5 of them by episode 3
    assert updates == [0, 0, 2 * 5, 2 * 10, 2 * 15]


@pytest.mark.slow
@pytest.mark.parametrize("num_store", [None, 2])
def test_it_is_saved_and_goes_on_to_the_bit(num_store: int | None, tmp_path: Path) -> None:
    # in as many processes as before, and beside them
    again = {"num_store": num_store}
    beside = {"processes": 2, "parallel_store_and_training": True, **again}
    walking, file = partial(walkers, PR=True), tmp_path / "agent.dat"
    whole, second = resumed(walking, file, 4, 10, again=again, **beside)
    assert second._assembly.beside and alike(second, whole)


@pytest.mark.slow
def test_it_may_begin_and_end_between_two_trainings_and_after_a_file(tmp_path: Path) -> None:
    agent, optimizer = probe()
    for beside in (False, True):
        agent.train(optimizer, 3, processes=2, parallel_store_and_training=beside, p=0)
        assert agent._assembly.beside is beside and len(agent._assembly.learner.ring) > 0
    agent.save(tmp_path / "agent.dat")
    apart: Any = {"processes": 2, "parallel_store_and_training": False}
    for here, saved in ((False, True), (True, True), (False, False), (True, False)):
        other, before = agent, len(agent.reward_list)
        train = {"pool_network": False} if here else apart  # whatever was before
        if saved:
            other, optimizer = probe()
            other.restore(tmp_path / "agent.dat")
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            other.train(optimizer if saved else None, 2, p=0, **train)
        assert not saved or any("starts new episodes" in str(w.message) for w in told)
        assert len(other.reward_list) >= before + 2 and not other._assembly.beside
        assert isinstance(other._assembly.environments, Stepped) is here
        assert other._assembly.processes == (1 if here else 2)


@pytest.mark.slow
def test_noise_begins_anew_with_each_episode() -> None:
    """OU noise is reset before the first action of an episode, which is chosen ahead."""
    resets: list[int] = []

    class Noise(OrnsteinUhlenbeckProcess):
        taken = 0

        def sample(self) -> Any:
            self.taken += 1
            return super().sample()

        def reset_states(self) -> None:
            resets.append(self.taken)
            super().reset_states()

    actor, line = own(action=lambda self, s: self.net(s)[:, :1]), Clock(5)
    line.action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    agent = ready(line, actor, policy=None, noise=Noise(0.15), batch=4)
    resets.clear()
    fit(agent, 3, processes=1, parallel_store_and_training=True)
    assert resets[-3:] == [5, 10, 15]


@pytest.mark.slow
def test_a_lost_process_is_replaced() -> None:
    def kill(i: int, logs: Any) -> None:
        if i == 3:
            worker = agent._assembly.environments.group.workers[0]
            os.kill(worker.process.pid, signal.SIGKILL)

    agent, optimizer = walkers()
    agent.callbacks = [LambdaCallback(on_episode_end=kill)]
    with pytest.warns(UserWarning, match="is restarted"):
        agent.train(optimizer, 12, processes=2, parallel_store_and_training=True, p=0)
    assert len(agent.reward_list) >= 12
    # no transition goes from one episode into another
    learner = agent._assembly.learner
    batch = learner.ring.transitions(np.arange(learner.ring.oldest, learner.ring.newest - 5))
    same = batch.obs[:, 1] == batch.next_obs[:, 1]
    assert np.all(batch.next_obs[same, 0] - batch.obs[same, 0] == 1)


@pytest.mark.slow
def test_ppo_says_that_it_takes_turns(monkeypatch: Any) -> None:
    monkeypatch.setattr(train_call, "_said", set())
    kind = partial(probe, PPO=True, update_steps=12)
    with pytest.warns(UserWarning, match="PPO learns only from steps of its newest policy"):
        beside = trained(kind, processes=2, parallel_store_and_training=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = trained(kind, processes=1, parallel_store_and_training=True)
    assert alike(beside, again) and alike(beside, trained(kind))


def test_what_contradicts_it_is_refused() -> None:
    agent, optimizer = probe()
    with pytest.raises(SettingError, match="pool_network=False") as caught:
        agent.train(optimizer, 1, pool_network=False, parallel_store_and_training=True)
    assert "leave pool_network out" in caught.value.fix
    agent.train(optimizer, 1, processes=1, parallel_store_and_training=True, p=0)
    with pytest.raises(SettingError, match="True, False or None"):
        agent.train(optimizer, 1, parallel_store_and_training="yes")
