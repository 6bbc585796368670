"""Agents trained side by side: who wins, what comes back, and what becomes of lost processes."""

from __future__ import annotations

import os
import signal
import sys
import threading
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tandem import AgentFinder, ParallelFinder  # noqa: E402
from tandem.errors import NonFiniteError, SettingError, TandemError, WorkerError  # noqa: E402
from tests.tuning.test_finders import (  # noqa: E402  # noqa: E402
    START,
    TARGET,
    Aim,
    Aimer,
    Moody,
    adam,
    clocks,
    everything,
    points,
    sgd,
)
from tests.tuning.test_search import nothing_starts  # noqa: E402


class KilledOnce(Aim):
    def __init__(self, mark: Path) -> None:
        super().__init__()
        self.mark, self.steps = mark, 0

    def step(self, action: Any) -> Any:
        self.steps += 1
        if self.steps == 3 and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


def aimer(env: Any = None) -> Any:
    agent = Aimer()
    agent.env = env or agent.env
    return agent


@pytest.mark.slow
def test_the_best_comes_back_as_it_was_trained_and_a_lost_one_is_named(tmp_path, capsys) -> None:
    trained, twin, killed = Moody(), Moody(), aimer(KilledOnce(tmp_path / "mark"))
    for agent in (trained, twin):
        agent.train(adam(agent), 3, p=0)
    agents = [killed, aimer(), trained]
    optimizers = [sgd(killed, 0.5), sgd(agents[1], 1e-9), trained.optimizer]
    before = everything(agents[1], tmp_path / "before")
    capsys.readouterr()
    finder = ParallelFinder(agents, optimizers)
    with pytest.warns(UserWarning, match=r"agent 1 \(Aimer, SGD \(0.5\)\) was killed .* again"):
        assert finder.find(episodes=6, parallel=2) is trained
    d = TARGET - START
    assert np.allclose(finder.rewards[0], [-((d * 0.5**k) ** 2) for k in range(6)])
    assert np.allclose(finder.rewards[1], -(d**2)) and len(finder.losses[1]) == 6
    lines = capsys.readouterr().out.splitlines()
    assert {line[:12] for line in lines[:3]} == {f"trial:{i} of 3" for i in (1, 2, 3)}
    assert lines[3] == "best agent:agent 3 (Moody, Adam (0.001))" and len(lines) == 4
    # the winner is what training here would have made of it, and goes on so
    logs = finder.logs
    assert logs["best_index"] == 2 and logs["best_agent"] is trained
    assert logs["best_opt"] is trained.optimizer and len(logs["times"]) == 3
    assert logs["best_reward"] == pytest.approx(np.mean(finder.rewards[2]))
    twin.train(None, 6, p=0)
    assert trained.reward_list == twin.reward_list and trained.loss_list == twin.loss_list
    assert trained.eps == twin.eps and len(finder.rewards[2]) == 6
    for agent in (trained, twin):
        agent.train(None, 3, p=0)
    one, other = (everything(a, tmp_path / "x") for a in (trained, twin))
    assert one[1:4] == other[1:4] and trained.loss_list == twin.loss_list
    # the others are as before
    assert everything(agents[1], tmp_path / "after") == before
    assert killed.w.item() == START and killed.reward_list == []


@pytest.mark.slow
def test_several_optimizers_and_environments_and_least_loss(tmp_path: Path) -> None:
    pair, clock = points(), Moody(clocks(), PPO=True, update_steps=9)
    clock.path = tmp_path / "no-file"
    finder = AgentFinder([pair, clock], [adam(pair), adam(clock)])
    best = finder.find(episodes=2, metrics="loss", parallel=1, processes=2, p=0)
    assert finder.logs["best_loss"] == min(np.mean(finder.losses[i]) for i in (0, 1))
    assert isinstance(best.optimizer, list) == (best is pair)
    assert best.total_episode >= 2 and not list(tmp_path.iterdir())


@pytest.mark.slow
def test_what_goes_wrong_there_leaves_all_as_before() -> None:
    class Broken(Aim):
        def step(self, action: Any) -> Any:
            raise ValueError("mine")

    good, broken = aimer(), aimer(Broken())
    with pytest.raises(WorkerError, match=r"agent 2 \(Aimer, SGD .* raised .*mine"):
        ParallelFinder([good, broken], [sgd(good), sgd(broken)]).find(episodes=3, p=0)
    with pytest.raises(NonFiniteError, match="no trial finished"):
        ParallelFinder([good], [sgd(good, 1e30)]).find(episodes=8, p=0)
    assert good.w.item() == START and good.reward_list == [] and good.optimizer is None


def in_memory() -> Any:
    """An agent of a class whose module is no file."""
    module = types.ModuleType("only_in_memory")
    source = "from tests.tuning.test_finders import Aimer\nclass Gone(Aimer):\n    pass\n"
    exec(source, module.__dict__)
    module.Gone.__module__ = module.__name__
    sys.modules["only_in_memory"] = module
    return module.Gone()


def altered(**attributes: Any) -> Any:
    agent = aimer()
    vars(agent).update(attributes)
    return agent


@pytest.mark.parametrize(
    ("find", "part"),
    [
        (lambda a: ParallelFinder([a], [sgd(a)]).find(strategy=0), "strategy=0"),
        (lambda a: ParallelFinder([a], [sgd(a)]).find(metrics="los"), "metrics='los'"),
        (lambda a: ParallelFinder([a], []), "1 agents and 0 optimizers"),
        (lambda a: ParallelFinder([a, a], [sgd(a)] * 2), "the same agent was given twice"),
        (lambda a: ParallelFinder([a], [sgd(a)]).find(parallel=0), "parallel=0"),
        (
            lambda a: searched(a, altered(lock=threading.Lock())),
            r"agent 2 \(Aimer, SGD .* cannot be sent .*lock",
        ),
        (lambda a: searched(a, in_memory()), "only_in_memory.Gone, but only_in_memory has no file"),
        (lambda a: searched(a, altered(_arguments=None)), "find was called before set"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_runs(find, part, monkeypatch) -> None:
    nothing_starts(monkeypatch, "workers.jobs.Process")
    agent = aimer()
    with pytest.raises(TandemError, match=part) as caught:
        find(agent)
    assert isinstance(caught.value, SettingError) and caught.value.expected and caught.value.fix
    assert vars(agent).get("optimizer") is None and agent.path is None


def searched(*agents: Any) -> Any:
    return ParallelFinder(agents, [sgd(a) for a in agents]).find(p=0)
