"""How many transitions a pool of several environments holds, and which of them go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tandem.errors import SettingError
from tandem.exploration import GreedyQPolicy
from tandem.math.effective import effective_sample_size
from tests.agents.agents import Clock, Probe, Walk, resumed, trained


class Sized(Probe):
    """Notes how many transitions there are when its loss is computed."""

    sizes: tuple[int, ...] = ()

    def __call__(self, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> Any:
        if (sampler := self.prioritized_replay.sampler) is not None:
            self.sizes += (len(sampler.ring),)
        return super().__call__(s, a, next_s, r, d)


def clocks(n: int) -> list[Clock]:
    return [Clock(5 + i) for i in range(n)]


def ring(agent: Any) -> Any:
    return agent._assembly.learner.ring


def test_pool_size_is_never_exceeded(capsys: pytest.CaptureFixture[str]) -> None:
    agent = Sized(clocks(7))
    agent.set(policy=GreedyQPolicy(), pool_size=100, batch=4)
    agent.train(torch.optim.SGD(agent.param, 0.01), 30)
    assert max(agent.sizes) == 98 == len(ring(agent))
    said = capsys.readouterr().out
    assert "holds 98 transitions of pool_size=100: 14 of each of 7 environments" in said


@pytest.mark.parametrize(
    ("choices", "fix"),
    [
        ({"pool_size": 6, "batch": 4}, 7),
        ({"pool_size": 9, "batch": 8}, 14),
        ({"pool_size": 30, "batch": 4, "PPO": True, "update_steps": 29}, 35),
    ],
)
def test_a_pool_that_holds_too_little_is_refused(choices: Any, fix: int) -> None:
    with pytest.raises(SettingError, match=f"set pool_size={fix}, or more"):
        trained(Probe(clocks(7)), 4, **choices)
    trained(Probe(clocks(7)), 4, **(choices | {"pool_size": fix}))


def test_counts_and_windows_below_the_number_of_environments() -> None:
    # 70 stored ones, 5 go for every 10
    agent = trained(Sized(clocks(7)), 14, train={"clearing_freq": 10, "window_size_": 5}, batch=2)
    assert agent.sizes
    time = ring(agent).time
    assert len(ring(agent)) == 7 * time - 7 * time // 10 * 5
    for t, size in enumerate(dict.fromkeys(agent.sizes)):
        assert size == 7 * (t + 1) - 7 * (t + 1) // 10 * 5
    agent = trained(Sized(clocks(7)), 20, pool_size=28, train={"window_size": 3})
    assert set(agent.sizes[-50:]) == {28 - 3}


class Windows(Probe):
    """Drops as many of process p's transitions as `counts` says."""

    def __init__(self, env: Any, counts: Any) -> None:
        super().__init__(env)
        self.counts, self.left = counts, list[Any]()

    def window_size_fn(self, p: int) -> int:
        pool, (first, *_) = ring(self), self.prioritized_replay.columns[p]
        own = [len(pool.rows([e])) for e in self.prioritized_replay.columns[p]]
        self.left.append((p, first, own, len(self.prioritized_replay.powers(p))))
        return self.counts[p]


@pytest.mark.slow
def test_windows_are_of_each_process() -> None:
    agent = Windows(clocks(3), [2, 3])
    trained(agent, 6, PR=True, update_steps=8, batch=3, train={"processes": 2})
    # the second process has environments 1 and 2
    assert [p for p, *_ in agent.left[:4]] == [0, 1, 0, 1]
    assert all(first == p for p, first, *_ in agent.left)
    assert all(sum(own) == powers for *_, own, powers in agent.left)
    calls = len(agent.left) // 2
    steps = ring(agent).time
    left = [2 * calls, 2 * calls - calls // 2, calls + calls // 2]
    assert [len(ring(agent).rows([e])) for e in range(3)] == [steps - n for n in left]


def test_with_one_process_p_is_0() -> None:
    agent = Windows(clocks(3), [4])
    trained(agent, 6, PR=True, update_steps=8, batch=3)
    assert {p for p, *_ in agent.left} == {0}
    assert len(ring(agent)) == 3 * ring(agent).time - 4 * len(agent.left)


@pytest.mark.slow
def test_sizes_and_averages_are_of_each_process() -> None:
    class Adaptive(Probe):
        answers: tuple[Any, ...] = ()

        def window_size_fn(self, p: int) -> int:
            powers = self.prioritized_replay.powers(p)
            assert self.answers or self.ema_ess == [None, None]
            count = self.adjust_window_size(p, smooth_alpha=0.5)
            self.answers += ((p, len(powers), effective_sample_size(powers), count),)
            return count

    choices = {"PR": True, "update_steps": 8, "alpha": 1.0}
    agent = trained(Adaptive(clocks(4)), 6, train={"processes": 2}, **choices)
    assert len(agent.answers) > 8
    for p in (0, 1):
        average = None
        for _, n, size, count in (a for a in agent.answers if a[0] == p):
            average = size if average is None else 0.5 * size + 0.5 * average
            assert count == n - min(max(int(average), 1), n - 1)
        assert agent.ema_ess[p] == pytest.approx(average)
    with pytest.raises(SettingError, match="p=2 with 2 processes"):
        agent.adjust_window_size(2)


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.thorough)])
def test_what_is_left_is_saved(processes: int, tmp_path: Path) -> None:
    def fresh() -> Any:
        agent = Windows([Walk() for _ in range(5)], [3, 1])
        agent.set(policy=GreedyQPolicy(), pool_size=40, batch=4, PR=True, update_steps=3)
        return agent, torch.optim.Adam(agent.param, 0.01)

    train = {"processes": processes, "clearing_freq": 7, "window_size_": 2}
    whole, again = resumed(fresh, tmp_path / "x.dat", 4, 8, **train)
    assert again.loss_list == whole.loss_list
    assert ring(again).rows().tolist() == ring(whole).rows().tolist()


def test_a_file_of_a_longer_pool_loads(tmp_path: Path) -> None:
    """Once pools were rounded up, to 15 of each of 7 environments here."""
    agent = trained(Probe([Walk() for _ in range(7)]), 30, pool_size=105, PR=True, lr=0.0)
    agent.save(tmp_path / "x.dat")
    again = Probe([Walk() for _ in range(7)])
    again.set(policy=GreedyQPolicy(), pool_size=100, batch=4, PR=True)
    again.restore(tmp_path / "x.dat")
    again.train(torch.optim.SGD(again.param, 0.0), 0, p=0)
    assert len(ring(agent)) == 105
    assert ring(again).rows().tolist() == ring(agent).rows()[7:].tolist()
    replay, old = again.prioritized_replay, agent.prioritized_replay
    np.testing.assert_array_equal(replay.TD, old.TD[7:])
    np.testing.assert_array_equal(replay.powers(), old.powers()[7:])
    again.train(None, 10, p=0)
    assert len(ring(again)) == 98
