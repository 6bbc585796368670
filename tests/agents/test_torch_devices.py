"""Agents of PyTorch whose minibatches are divided among processes."""

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from tandem import LambdaCallback, LRFinder, OptFinder
from tandem.backends.variables import flat
from tandem.errors import WorkerError
from tandem.examples.pytorch import DDPG_HER, DQN, MADDPG, PPO_pr
from tandem.exploration import EpsGreedyQPolicy, GaussianWhiteNoiseProcess, SoftmaxPolicy
from tests.helpers import ROOT
from tests.learning.test_launch import ended, free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
thorough = pytest.mark.thorough
DEVICES = 2
SNIPPET = Path(__file__).parent / "snippets" / "torch_launched.py"


class Dropping(DQN.DQN):
    """With dropout and batch norm, whose statistics the loss moves."""

    def __init__(self) -> None:
        super().__init__(4, 8, 2)
        layers = (torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.3))
        self.more = torch.nn.Sequential(*layers)
        self.param = [*self.param, *self.more.parameters()]

    def __call__(self, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> Any:
        return super().__call__(s + 0.1 * self.more(s), a, next_s, r, d)


DDPG = (8, 0.1, 0.98, 0.005)
CASES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "PR": (lambda: DQN.DQN(4, 8, 2), EpsGreedyQPolicy, {"PR": True}),
    "PPO": (lambda: PPO_pr.PPO(4, 8, 2, 0.7, 0.7), SoftmaxPolicy, {"PPO": True, "PR": True}),
    "HER": (lambda: DDPG_HER.DDPG(*DDPG), GaussianWhiteNoiseProcess, {"HER": True}),
    "MARL": (lambda: MADDPG.DDPG(*DDPG), SoftmaxPolicy, {"MARL": True}),
    "dropout": (Dropping, EpsGreedyQPolicy, {}),
}


def made(name: str = "PR") -> Any:
    kind, explorer, choices = CASES[name]
    torch.manual_seed(0)
    agent = kind()
    groups = agent.param if isinstance(agent.param[0], list) else [agent.param]
    agent.optimizer = [torch.optim.AdamW(group, 0.01) for group in groups]
    how = "noise" if explorer is GaussianWhiteNoiseProcess else "policy"
    sizes = {"pool_size": 200, "batch": 8, "update_steps": 30 if name == "PPO" else 3}
    number = {"PPO": 3, "HER": 1, "MARL": 1}.get(name)
    agent.set(**{how: explorer()}, num_updates=number, **sizes, **choices)
    return agent


def train(agent: Any, episodes: int = 4, devices: int = DEVICES) -> Any:
    call = agent.train if devices == 1 else partial(agent.distributed_training, strategy=devices)
    call(optimizer=None, episodes=episodes, pool_network=False, p=0)
    return agent


def tensors(agent: Any) -> list[Any]:
    return [p.detach() for p in flat(agent.param)]


def far(one: Any, other: Any) -> float:
    pairs = zip(tensors(one), tensors(other), strict=True)
    return max(float((x - y).abs().max()) for x, y in pairs)


def rounded(agent: Any) -> Any:
    return pytest.approx(list(agent.loss_list), rel=1e-5, abs=1e-6)


def test_training_with_priorities_on_two_devices_is_that_of_one() -> None:
    two, one = train(made()), train(made(), devices=1)
    assert far(two, one) < 1e-5 and two.loss_list == rounded(one)
    assert two.reward_list == one.reward_list and two.loss_list[-1] > 0
    train(two, 2)  # by the same processes
    train(one, 2, 1)
    assert far(two, one) < 1e-5


@thorough
@pytest.mark.parametrize("name", ["PPO", "HER", "MARL"])
def test_training_on_two_devices_is_that_of_one(name: str) -> None:
    two, again, one = train(made(name), 2), train(made(name), 2), train(made(name), 2, 1)
    assert far(two, one) < 1e-5 and two.loss_list == rounded(one)
    assert far(two, again) == 0 and two.loss_list == again.loss_list


@thorough
@pytest.mark.parametrize("name", ["PR", "dropout"])
def test_it_goes_on_from_a_file_and_after_a_stop(name: str, tmp_path) -> None:
    whole, agent = train(made(name), 6), train(made(name), 3)
    agent.save(tmp_path / "agent.dat")
    other = made(name)
    other.restore(tmp_path / "agent.dat")
    train(other, 3)
    assert far(whole, other) == 0 and whole.loss_list == other.loss_list

    stopped = made(name)

    def stop(batch: int, logs: Any) -> None:
        stopped.stop_training = batch == 20

    stopped.callbacks = [LambdaCallback(on_batch_end=stop)]
    train(stopped, 6)
    stopped.callbacks = []
    train(stopped, 6 - len(stopped.loss_list))
    assert far(whole, stopped) == 0 and whole.loss_list == stopped.loss_list


@thorough
def test_numbers_that_are_moved_reach_the_other_process() -> None:
    def moving(devices: int) -> Any:
        agent = made()

        def move(episode: int, logs: Any) -> None:
            agent.gamma *= 0.9
            agent.optimizer[0].param_groups[0]["lr"] *= 0.5
            for p in tensors(agent)[:1]:
                p.mul_(0.9)

        agent.callbacks = [LambdaCallback(on_episode_end=move)]
        return train(agent, 4, devices)

    two, one = moving(DEVICES), moving(1)
    assert far(two, one) < 1e-5 and two.loss_list == rounded(one)


@thorough
def test_finders_take_a_number_of_devices() -> None:
    agent = train(made(), 2)
    before = [x.clone() for x in tensors(agent)]
    finder = LRFinder(agent)
    assert 1e-4 <= finder.find(strategy=DEVICES, N=4, episodes=3, p=0) <= 1
    best = OptFinder(agent, [torch.optim.SGD(agent.param, 1e-3), torch.optim.Adam(agent.param)])
    best.find(strategy=DEVICES, episodes=2, p=0)
    assert all(map(torch.equal, before, tensors(agent)))
    train(agent, 1)


@thorough
def test_a_process_that_is_killed_is_named_and_another_made() -> None:
    agent, kills = made(), []

    def kill(episode: int, logs: Any) -> None:
        if episode == 2:
            followers = agent._assembly.backend.layout.group.followers
            kills.append(followers._processes[1].pid)
            os.kill(kills[0], signal.SIGKILL)

    agent.callbacks = [LambdaCallback(on_episode_end=kill)]
    with pytest.raises(WorkerError, match="rank 1, of strategy=2, was killed") as caught:
        train(agent, 9)
    with pytest.raises(ProcessLookupError):
        os.kill(kills[0], 0)
    assert "call distributed_training again" in caught.value.fix
    agent.callbacks = []
    train(agent, 1)  # by a new one


def launched(case: str, folder: Path) -> list[tuple[int, Any]]:
    """The exit code of each of two processes that torchrun has started, and what it found."""
    told = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    told["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    command = [sys.executable, str(SNIPPET), case, str(folder)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    each = [{**os.environ, **told, "RANK": str(rank)} for rank in range(2)]
    found = ended([subprocess.Popen(command, env=env, **pipes) for env in each])
    lines = [said.strip().splitlines() for _, said, _ in found]
    return [(x[0], json.loads(y[-1]) if y else x[2]) for x, y in zip(found, lines, strict=True)]


@thorough
def test_all_have_the_agent_that_one_process_would_have(tmp_path: Path) -> None:
    (code, one), (other_code, other) = launched("follows", tmp_path)
    assert (code, other_code) == (0, 0), (one, other)
    assert one["weights"] == other["weights"] and one["first"] == other["first"] != [0.0]
    assert one["resumed"] == other["resumed"] == one["weights"]
    assert len(one["losses"]) == 6 and other["losses"] == []  # the first one collects
    alone = train(train(made(), 4, 1), 2, 1)
    assert one["losses"] == rounded(alone)
    sums = [float(x.double().sum()) for x in tensors(alone)]
    assert one["weights"] == pytest.approx(sums, rel=1e-4, abs=1e-4)


@thorough
def test_one_that_is_lost_is_named(tmp_path: Path) -> None:
    (code, one), (other_code, _) = launched("dies", tmp_path)
    assert (code, other_code) == (0, 7), one
    assert one.startswith("WorkerError: the process of rank 1, of 2 that were launched, has died")
    assert "start all of them again, with agent.restore" in one
    (_, one), (_, other) = launched("raises", tmp_path)
    assert one == "OSError: mine"
    assert other.startswith("WorkerError: the process of rank 0, of 2 that were launched, has end")
