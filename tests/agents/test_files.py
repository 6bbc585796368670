"""What a file gives back at once, and what becomes of it before there is training again."""

from __future__ import annotations

import copy
import threading
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tandem.agents.train_call import LambdaCallback  # noqa: E402
from tandem.errors import CheckpointError  # noqa: E402
from tandem.exploration import EpsGreedyQPolicy  # noqa: E402
from tandem.runs import checkpoint  # noqa: E402
from tests.agents.agents import Clock, Probe  # noqa: E402
from tests.agents.agents import trained as trained_probe  # noqa: E402
from tests.agents.test_contract import Walk  # noqa: E402


class Behind(Probe):
    """Acts by the network that follows, as PPO does; a batch norm, and a number of its own in no
    list."""

    def __init__(self, seed: int) -> None:
        super().__init__(Walk())
        torch.manual_seed(seed)
        self.net = torch.nn.Sequential(torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 2))
        self.target = copy.deepcopy(self.net)
        self.param, self.scale = self.net.parameters(), torch.tensor(float(seed))
        self.set(policy=EpsGreedyQPolicy(0.5), pool_size=50, batch=4, update_steps=3)

    def action(self, s: Any) -> Any:
        return self.target(s)

    def update_param(self) -> None:
        self.target.load_state_dict(self.net.state_dict())


def arrays(agent: Any) -> list[Any]:
    return [*agent.net.state_dict().values(), *agent.target.state_dict().values(), agent.scale]


def trained(agent: Any, episodes: int) -> Any:
    agent.train(
        torch.optim.Adam(agent.param, 0.01) if agent.optimizer is None else None, episodes, p=0
    )
    return agent


def test_all_networks_are_restored_before_there_is_training(tmp_path: Path) -> None:
    first = trained(Behind(1), 3)
    first.save(tmp_path / "agent")
    second = Behind(2)
    second.restore(tmp_path / "agent")
    assert all(torch.equal(x, y) for x, y in zip(arrays(first), arrays(second), strict=True))
    assert first.run_agent(20, seed=5)[1] == second.run_agent(20, seed=5)[1]


def test_a_restored_agent_is_saved_with_its_training(tmp_path: Path) -> None:
    first = trained(Behind(1), 3)
    first.save(tmp_path / "first")
    second, third = Behind(2), Behind(3)
    second.restore(tmp_path / "first")
    second.save(tmp_path / "second")
    third.restore(tmp_path / "second")
    trained(first, 3), trained(third, 3)
    assert all(torch.equal(x, y) for x, y in zip(arrays(first), arrays(third), strict=True))
    assert first.reward_list == third.reward_list and first.loss_list == third.loss_list


def test_smoothed_sizes_of_the_pool_are_kept(tmp_path: Path) -> None:
    class Windowed(Probe):
        def __init__(self) -> None:
            super().__init__(Walk())
            self.dropped: list[int] = []
            self.set(policy=EpsGreedyQPolicy(0.5), pool_size=50, batch=4, PR=True)

        def window_size_fn(self) -> int:
            self.dropped.append(self.adjust_window_size(smooth_alpha=0.01))
            return self.dropped[-1] if len(self.prioritized_replay.TD) > 30 else 0

    first = trained(Windowed(), 4)
    first.save(tmp_path / "agent")
    first.dropped, second = [], Windowed()
    second.restore(tmp_path / "agent")
    assert trained(first, 2).dropped == trained(second, 2).dropped


def test_an_agent_must_explore_as_the_one_that_was_saved(tmp_path: Path) -> None:
    class Fixed(Behind):
        def action(self, s: Any) -> Any:
            return torch.ones(len(s), dtype=torch.int64)

    first, second, third = Fixed(1), Fixed(2), Fixed(3)
    first.set(pool_size=50, batch=4)
    trained(first, 2).save(tmp_path / "agent")
    second.restore(tmp_path / "agent")
    with pytest.raises(CheckpointError, match=r"does not fit this agent \(ValueError"):
        trained(second, 2)
    third.set(pool_size=50, batch=4)
    third.restore(tmp_path / "agent")
    assert trained(third, 2).total_episode == 4


class Same(Clock):
    """Every episode is the first one, so that training resumes exactly."""

    def reset(self) -> Any:
        self.episode = 0
        return super().reset()


def test_a_file_that_waited_for_the_disk_holds_one_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three episodes end in the same step. The file of the first one is written after the seventh
    episode."""
    begun, free, write = threading.Event(), threading.Event(), checkpoint.write

    def waits(*arguments: Any) -> None:
        begun.set()
        assert free.wait(60)
        write(*arguments)

    def ended(episode: int, logs: Any) -> None:
        assert episode != 1 or begun.wait(60)
        if episode == 6:
            free.set()

    monkeypatch.setattr(checkpoint, "write", waits)
    agent = Probe([Same(3) for _ in range(3)])
    agent.path, agent.max_save_files = tmp_path / "m.dat", 30
    agent.callbacks = [LambdaCallback(on_episode_end=ended)]
    trained_probe(agent, 9, train={"pool_network": False})
    files = sorted(tmp_path.iterdir(), key=lambda f: int(f.name.split("-")[1]))
    assert files[0].name.startswith("m-1-") and files[-1].name.startswith("m-9-")
    for file in files:
        n = int(file.name.split("-")[1])
        other = Probe([Same(3) for _ in range(3)])
        other.restore(file)
        assert (other.total_episode, other.reward_list) == (n, agent.reward_list[:n])
        assert 0 < other.total_time <= agent.total_time and len(other.loss_list) == n
        trained_probe(other, 9 - n, train={"pool_network": False})
        assert (other.reward_list, other.loss_list) == (agent.reward_list, agent.loss_list)
        assert torch.equal(other.net.weight, agent.net.weight)
