"""Agents of PyTorch whose mini-batches are divided among processes."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from tandem.errors import SettingError, WorkerError

torch = pytest.importorskip("torch")

from tandem import LambdaCallback, LRFinder, OptFinder  # noqa: E402
from tandem.examples.pytorch import DDPG_HER, DQN, MADDPG, PPO_pr  # noqa: E402
from tandem.exploration import (  # noqa: E402
    EpsGreedyQPolicy,
    GaussianWhiteNoiseProcess,
    SoftmaxPolicy,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
thorough = pytest.mark.thorough
DEVICES = 2


class Dropping(DQN.DQN):
    """With dropout and batch norm, whose statistics the loss moves."""

    def __init__(self) -> None:
        super().__init__(4, 8, 2)
        self.more = torch.nn.Sequential(
            torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.3)
        )
        self.param = [*self.param, *self.more.parameters()]

    def __call__(self, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> Any:
        return super().__call__(s + 0.1 * self.more(s), a, next_s, r, d)


CASES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "PR": (lambda: DQN.DQN(4, 8, 2), EpsGreedyQPolicy, {"PR": True}),
    "PPO": (
        lambda: PPO_pr.PPO(4, 8, 2, 0.7, 0.7),
        SoftmaxPolicy,
        {"PPO": True, "PR": True, "update_steps": 30, "num_updates": 3},
    ),
    "HER": (
        lambda: DDPG_HER.DDPG(8, 0.1, 0.98, 0.005),
        GaussianWhiteNoiseProcess,
        {"HER": True, "num_updates": 1},
    ),
    "MARL": (
        lambda: MADDPG.DDPG(8, 0.1, 0.98, 0.005),
        SoftmaxPolicy,
        {"MARL": True, "num_updates": 1},
    ),
    "dropout": (Dropping, EpsGreedyQPolicy, {}),
}


def made(name: str = "PR", **more: Any) -> Any:
    kind, explorer, choices = CASES[name]
    torch.manual_seed(0)
    agent = kind()
    nested = isinstance(agent.param[0], list)
    groups = agent.param if nested else [agent.param]
    agent.optimizer = [torch.optim.AdamW(group, 0.01) for group in groups]
    how = "noise" if explorer is GaussianWhiteNoiseProcess else "policy"
    agent.set(
        **{"pool_size": 200, "batch": 8, "update_steps": 3, how: explorer(), **choices, **more}
    )
    return agent


def train(agent: Any, episodes: int = 4, devices: int = DEVICES) -> Any:
    if devices == 1:
        agent.train(None, episodes, pool_network=False, p=0)
    else:
        agent.distributed_training(None, devices, episodes, pool_network=False, p=0)
    return agent


def tensors(agent: Any) -> list[Any]:
    groups = agent.param if isinstance(agent.param[0], list) else [agent.param]
    return [p.detach() for group in groups for p in group]


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
            kills.append(companion(agent))
            os.kill(kills[0], signal.SIGKILL)

    agent.callbacks = [LambdaCallback(on_episode_end=kill)]
    with pytest.raises(WorkerError, match="rank 1, of strategy=2, was killed") as caught:
        train(agent, 9)
    with pytest.raises(ProcessLookupError):
        os.kill(kills[0], 0)
    assert "call distributed_training again" in caught.value.fix
    agent.callbacks = []
    train(agent, 1)  # by a new one


def companion(agent: Any) -> int:
    followers: Any = agent._assembly.backend.layout.group.followers
    return int(followers._processes[1].pid)


@thorough
def test_frozen_weights_are_refused_until_it_begins_anew() -> None:
    agent = train(made(), 2)
    agent.param[0].requires_grad_(False)
    with pytest.raises(SettingError, match="weights were frozen or thawed"):
        train(agent, 1)
    agent.param[0].requires_grad_(True)
