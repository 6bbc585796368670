"""`train(..., processes=n)`: the same training, with its environments in several processes."""

import os
import signal
import threading
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tandem import LambdaCallback
from tandem.agents import collection, user_functions
from tandem.errors import EnvironmentFault, SettingError, WorkerError
from tandem.examples.pytorch import DDPG_HER, MADDPG
from tandem.examples.worlds import PointWorld, Relay
from tandem.exploration import EpsGreedyQPolicy, GaussianWhiteNoiseProcess, SoftmaxPolicy
from tests.agents.agents import Clock, Probe, Walk, alike, fit, ready, resumed, same
from tests.parallel.faulty import Faulty


def probe(**choices: Any) -> Any:
    clocks = [Clock(5), Clock(7), Clock(4, cut=True)]
    agent = ready(clocks, **{"update_steps": 3, **choices})
    return agent, torch.optim.Adam(agent.param)


def walkers(**choices: Any) -> Any:
    """The same, whose episodes can be played again."""
    agent = ready(**{"update_steps": 3, **choices})
    return agent, torch.optim.Adam(agent.param)


SIZES = {"pool_size": 600, "batch": 32, "num_updates": 3}


class Points(DDPG_HER.DDPG):
    def reward_done_func(self, next_state: Any, goal: Any) -> Any:
        return PointWorld.judge(next_state, goal)


def ddpg(kind: Any, env: Any, **choices: Any) -> Any:
    torch.manual_seed(0)
    agent = kind(16, 0.1, 0.98, 0.005)
    agent.env = [env() for _ in range(3)]
    agent.set(**SIZES, **choices)
    return agent, [torch.optim.Adam(part) for part in agent.param]


def hindsight() -> Any:
    return ddpg(Points, PointWorld, noise=GaussianWhiteNoiseProcess(), HER=True)


def several() -> Any:
    return ddpg(MADDPG.DDPG, Relay, policy=SoftmaxPolicy(), MARL=True)


AGENTS: dict[str, Any] = {
    "PPO by episodes": lambda: probe(PPO=True, update_steps=None, update_batches=7),
    "hindsight, two optimizers": hindsight,
    "several agents": several,
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", AGENTS)
def test_it_is_the_training_of_one_process(kind: str) -> None:
    found = []
    for processes in (1, 2):
        agent, optimizer = AGENTS[kind]()
        agent.seed = 5
        agent.train(optimizer, 12, processes=processes, p=0)
        found.append(agent)
    assert alike(*found) and len(found[0].reward_list) >= 12


def test_the_pool_of_hindsight_is_read_without_goals() -> None:
    agent, optimizer = hindsight()
    agent.train(optimizer, 3, p=0)
    ring = agent._assembly.learner.ring
    assert agent.state_pool.shape == agent.next_state_pool.shape == (len(ring), 2)
    assert agent.action_pool.shape == (len(ring), 2) and agent.HER
    team, optimizer = several()
    team.train(optimizer, 3, p=0)
    assert team.state_pool.shape[1:] == (2, 4) and team.action_pool.shape[1:] == (2,)


@pytest.mark.slow
def test_one_environment_is_copied_for_each_process() -> None:
    agent = ready(Clock(5))
    environments = fit(agent, 6, processes=3)._assembly.environments
    assert environments.n == 3 and len(environments.group.workers) == 2
    assert agent.reward_list == [15.0] * 6


@pytest.mark.slow
def test_it_is_saved_and_goes_on_to_the_bit(tmp_path: Path) -> None:
    walking, file = partial(walkers, PR=True), tmp_path / "model.dat"
    whole, second = resumed(walking, file, 6, 14, again={}, processes=2)  # in as many as before
    assert second._assembly.processes == 2 and alike(second, whole)


@pytest.mark.slow
def test_another_number_of_processes_keeps_the_pool() -> None:
    agent, optimizer = probe()
    agent.train(optimizer, 6, processes=1, p=0)
    rows, updates = len(agent._assembly.learner.ring), agent._assembly.learner.updates
    agent.train(None, 1, processes=3, p=0)
    assert agent._assembly.processes == 3 and len(agent._assembly.learner.ring) > rows > 0
    assert agent._assembly.learner.updates > updates > 0
    agent.train(None, 1, p=0)
    assert agent._assembly.processes == 3  # left open, it stays


def test_what_cannot_be_is_refused() -> None:
    agent, optimizer = probe()
    with pytest.raises(SettingError, match="processes=5 for 3 environments"):
        agent.train(optimizer, 1, processes=5, p=0)
    agent.env = [Clock(), Clock()]
    agent.env[1].lock = threading.Lock()
    with pytest.raises(SettingError, match="cannot be pickled"):
        agent.train(optimizer, 1, processes=2, p=0)


@pytest.mark.parametrize("fault", ["killed", "raises"])
def test_a_lost_worker_costs_its_unfinished_episode(fault: str, tmp_path: Path) -> None:
    agent = faulty(tmp_path, fault, at=30)
    with pytest.warns(UserWarning, match=r"worker 1 \(environment 1 of Ratio\)"):
        fit(agent, 8, processes=2)
    ring = agent._assembly.learner.ring
    ids = np.arange(ring.oldest, ring.newest + 1)
    ends = [np.flatnonzero(ring.last.take(ring.position(ids[ids % 2 == e]))) for e in (0, 1)]
    lengths = [np.diff(at, prepend=-1).tolist() for at in ends]
    valid = ring.valid.take(ring.position(ids[ids % 2 == 1]))
    # the 30th step is nowhere
    assert lengths[0] == [13] * 4 and np.flatnonzero(~valid).tolist() == [29]
    assert lengths[1][:3] == [13, 13, 3] and lengths[1][3] == 1 + 13
    assert len(agent.reward_list) == 8 - (len(agent.reward_list) < 8)


def faulty(folder: Path, fault: str = "none", **more: int) -> Any:
    envs = [Faulty(str(folder), fault, os.getpid(), **more) for _ in range(2)]
    agent = ready(envs, pool_size=200)
    agent.path = folder / "model.dat" if fault != "none" else None
    return agent


@pytest.mark.slow
def test_above_the_budget_training_ends_and_what_was_saved_is_whole(tmp_path: Path) -> None:
    agent, other = faulty(tmp_path, "raises", at=30, times=9), faulty(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # new episodes begin, at the end in this process
        with pytest.raises(WorkerError, match="the simulator diverged"):
            fit(agent, 100, processes=2)
        other.restore(tmp_path / "model.dat")
        assert other.reward_list == agent.reward_list and len(other.reward_list) >= 4
        fit(other, 2, processes=1)
    assert len(other.reward_list) == len(agent.reward_list) + 2


def test_a_signal_ends_it_though_a_worker_is_stuck(tmp_path: Path) -> None:
    agent, other = faulty(tmp_path, "stands still in C", at=30), faulty(tmp_path)

    def send() -> None:
        while not (tmp_path / "fault-0").exists():
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=send, daemon=True).start()
    with pytest.raises(KeyboardInterrupt, match="SIGTERM"):
        fit(agent, 100, processes=2)
    other.restore(tmp_path / "model.dat")
    assert other.reward_list == agent.reward_list and other.reward_list
    assert agent._assembly.environments.gone
    fit(agent, 3, processes=2)  # with new workers
    assert len(agent.reward_list) >= len(other.reward_list) + 3


def test_after_ctrl_c_a_later_call_is_as_patient_with_its_workers() -> None:
    agent, optimizer = probe()
    agent.callbacks = [LambdaCallback(on_episode_end=lambda *_: signal.raise_signal(signal.SIGINT))]
    with pytest.raises(KeyboardInterrupt):
        agent.train(optimizer, 100, processes=2, p=0)
    agent.callbacks = []
    group, before = agent._assembly.environments.group, len(agent.reward_list)
    assert group.patience == 60.0
    os.kill(group.workers[0].process.pid, signal.SIGKILL)
    with pytest.warns(UserWarning, match="is restarted"):
        agent.train(None, 4, p=0)
    assert agent._assembly.environments.group is group and len(agent.reward_list) >= before + 4


class Slow(Clock):
    def step(self, action: Any) -> Any:
        time.sleep(0.004)
        return super().step(action)


@pytest.mark.slow
def test_left_open_a_trial_chooses(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    assert 0.004 < collection.step_seconds(Slow()) < 0.4
    monkeypatch.setattr(collection, "cores", lambda: 4)
    seconds = lambda env: 4e-3 if isinstance(env, Slow) else 5e-6  # noqa: E731
    monkeypatch.setattr(collection, "step_seconds", seconds)
    choose, slow = collection.choose_processes, [Slow(), Slow(), Slow()]
    assert choose([Clock(), Clock(), Clock()], None, True)[0] == 1
    said = "processes for 3 environments on 4 cores: a step of one environment takes 4000 µs"
    assert choose(slow, None, True) == (3, f"3 {said}")
    assert choose(slow, None, False) == choose(Slow(), None, True) == (1, "")
    agent = ready([Slow(3), Slow(3)])
    agent.train(torch.optim.Adam(agent.param), 2)
    assert agent._assembly.processes == 2
    assert "2 processes for 2 environments" in capsys.readouterr().out


def test_as_many_processes_as_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collection, "cores", lambda: 8)
    agent = Probe(Clock())
    with pytest.raises(SettingError, match="before set"):
        agent.get_optimal_processes(1000)
    agent.set(policy=EpsGreedyQPolicy(0.3), pool_size=1000, batch=8)  # some 30 kB
    assert [agent.get_optimal_processes(memory) for memory in (10_000, 300, 50)] == [8, 4, 1]
    assert agent.get_optimal_processes(300, safety_factor=0.5) == 3
    assert agent.get_optimal_processes(10_000, min_exp_per_proc=300) == 3


def test_a_reward_function_travels_with_plain_data_alone() -> None:
    agent, _ = several()
    agent.bonus = {"gate": [1.0, np.ones(2)]}
    light = user_functions.team_reduction(agent, True).__self__
    assert type(light) is type(agent) and light.bonus is agent.bonus and light.gamma == agent.gamma
    assert "actors" not in vars(light) and "env" not in vars(light) and "param" not in vars(light)


class Diary(Probe):
    """Writes down which episodes begin in each environment, by what they show of their seeds."""

    def __init__(self, at: int = 0) -> None:
        super().__init__([Walk(at=at), Walk()])
        self.begun: list[list[int]] = [[], []]
        self.set(policy=EpsGreedyQPolicy(0.5), pool_size=60, batch=4)

    def action(self, s: Any) -> Any:
        for i in range(2):
            if float(s[i, 0]) == 0.0:
                self.begun[i].append(round(float(s[i, 1]) * 100))
        return super().action(s)


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_no_episode_is_repeated_after_an_error(processes: int, tmp_path: Path) -> None:
    whole, broken, again = Diary(), Diary(17), Diary()
    fit(whole, 20, processes=processes)
    with pytest.raises(EnvironmentFault, match="unplugged"):
        fit(broken, 20, processes=processes)
    played = len(broken.begun[0])
    broken.save(tmp_path / "agent")
    fit(broken, 8, processes=processes)
    pairs = zip(broken.begun, whole.begun, strict=True)
    assert played >= 3 and all(found == every[: len(found)] for found, every in pairs)
    again.restore(tmp_path / "agent")  # it goes on to the bit
    fit(again, 8, processes=processes)
    pairs = zip(again.begun, broken.begun, strict=True)
    assert all(found == every[-len(found) :] for found, every in pairs)
    assert same(broken.param, again.param)


@pytest.mark.slow
def test_episodes_that_were_played_in_another_number_of_processes_are_not_played_again() -> None:
    whole, agent = fit(Diary(), 20), Diary()
    for processes in (1, 2, 1):
        agent.seen = []
        fit(agent, 4, processes=processes)
    for found, every in zip(agent.begun, whole.begun, strict=True):
        # in their order, but for such as had only begun when the processes changed
        rest = iter(every)
        assert len(found) > 5 and all(one in rest for one in found)


def test_a_call_that_is_refused_leaves_no_transition_between_two_episodes() -> None:
    """Its look at the environment begins an episode; the pool's next row is not half of each."""

    class Torn(Probe):
        torn = False

        def __call__(self, *batch: Any) -> Any:
            if self.torn:
                raise RuntimeError("torn")
            return super().__call__(*batch)

    def stop(batch: int, logs: Any) -> None:
        agent.stop_training = agent.batch_counter >= 20

    agent = ready([Clock(50), Clock(50)], Torn, pool_size=160)
    agent.callbacks = [LambdaCallback(on_batch_end=stop)]
    fit(agent, 1, processes=1)
    agent.callbacks, agent.torn = [], True
    assert 0 < float(agent.next_state_pool[-1][0]) < 50  # under way
    with pytest.raises(RuntimeError, match="torn"):
        fit(agent, 1, processes=2)
    agent.torn = False
    fit(agent, 1, processes=1)
    steps = np.array(agent.next_state_pool)[:, 0] - np.array(agent.state_pool)[:, 0]
    assert (steps[np.array(agent.done_pool) == 0] == 1).all(), steps
