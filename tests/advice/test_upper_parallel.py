"""The advice of the room parallel, followed; what needs a cluster is in `test_upper_ray.py`."""

from __future__ import annotations

import os
import tomllib
from dataclasses import replace
from pathlib import Path
from threading import Lock
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest

from tandem import trainer
from tandem.learning.config import Options
from tandem.parallel import ray as bridge
from tandem.parallel.env_factory import EnvFactory
from tandem.parallel.pool import WorkerOptions
from tandem.parallel.remote import Remote
from tests.advice.net import case, follows
from tests.advice.upper import SHORT, made, ran
from tests.helpers import ROOT
from tests.parallel.faulty import Faulty

pytest.importorskip("torch")


def door(envs: int = 4, on_policy: bool = True, **options: Any) -> None:
    """What is asked of options before workers begin."""
    makes = EnvFactory.of("CartPole-v1", envs, 0, None, None)
    WorkerOptions.of(makes, replace(Options(), **options), on_policy)


class Locked:
    """Makes environments, and has what cannot be pickled."""

    def __init__(self) -> None:
        self.lock = Lock()

    def __call__(self) -> Any:
        return gymnasium.make("CartPole-v1")


def by_function() -> Any:
    return Locked()()


A2C = {"algorithm": "a2c", "workers": 1, "envs": 2}
OBJECT = {**A2C, "env": gymnasium.make("CartPole-v1")}


@pytest.mark.parametrize(
    "each",
    [
        case(
            "parallel/env_factory.py:check_can_travel",
            made,
            OBJECT,
            "its id",
            {"env": "CartPole-v1"},
        ),
        case(
            "parallel/env_factory.py:check_can_travel",
            made,
            OBJECT,
            "the function that makes it",
            {"env": lambda: gymnasium.make("CartPole-v1")},
        ),
        case(
            "parallel/pool.py:WorkerOptions.of",
            door,
            {"runners": 1, "workers": 1},
            "leave one out",
            {"runners": 0},
        ),
        case(
            "parallel/pool.py:WorkerOptions.of",
            door,
            {"runners": 1, "workers": 1},
            "leave one out",
            {"workers": 0},
        ),
        case(
            "parallel/pool.py:WorkerOptions.of 2",
            door,
            {"workers": 1, "ahead": 1},
            "leave ahead out",
            {"ahead": -1},
        ),
        case("parallel/pool.py:WorkerOptions.of 3", door, {"workers": 4}),
        case(
            "parallel/pool.py:WorkerOptions.of 3",
            door,
            {"workers": 4},
            "at most 3 workers",
            {"workers": 3},
        ),
        case(
            "parallel/pool.py:WorkerOptions.of 3",
            door,
            {"runners": 6},
            "at most 4 runners",
            {"runners": 4},
        ),
        case("parallel/pool.py:WorkerOptions.of 3", door, {"workers": 5, "on_policy": False}),
        case(
            "parallel/process.py:not_picklable",
            made,
            {**A2C, "env": Locked()},
            "in a function",
            {"env": by_function},
            slow=True,
        ),
    ],
)
def test_followed(each: Any) -> None:
    each.follow()


@pytest.mark.parametrize(
    "given", [{"workers": 2, "envs": 1}, {"workers": 3, "train_every": 4, "envs": 2}]
)
def test_workers_of_what_replays(given: dict[str, Any]) -> None:
    """All that it takes is said at once."""
    more: Any = {"framework": "torch", "plots": False, "tensorboard": False}
    with follows("parallel/pool.py:WorkerOptions.of 3") as advice:
        trainer.session("sac", "Pendulum-v1", **given, **more)
    fix = advice.assigned()[0]
    assert set(fix) == {"envs", "train_every"}
    if "train_every" not in given:  # which follows by itself
        trainer.session("sac", "Pendulum-v1", **{**given, "envs": fix["envs"]}, **more)
    trainer.session("sac", "Pendulum-v1", **{**given, **fix}, **more).backend.close()


def test_workers_of_one_environment() -> None:
    more: Any = {"framework": "torch", "plots": False, "tensorboard": False, "workers": 2}
    with follows("parallel/env_factory.py:check_can_travel"):
        trainer.session("ppo", gymnasium.make("CartPole-v1"), **more)
    trainer.session("ppo", "CartPole-v1", **more).backend.close()


@pytest.mark.slow
def test_a_worker_that_is_lost(tmp_path: Path) -> None:
    def run(name: str, **given: Any) -> None:
        folder = tmp_path / name
        folder.mkdir()
        here = os.getpid()
        ran(**A2C, env=lambda: Faulty(str(folder), "raises", here, at=5), **given)

    with follows("parallel/worker_group.py:WorkerGroup.answer") as advice:
        run("once", worker_restarts=0)
    assert advice.assigned() == [{"worker_patience": 120, "worker_restarts": 1}]
    with pytest.warns(UserWarning, match="started anew"):
        run("again", **advice.assigned()[0])


def test_a_state_of_another_number_of_workers() -> None:
    one, two = (
        trainer.session("a2c", "CartPole-v1", **{**SHORT, "envs": 4, "workers": n}) for n in (1, 2)
    )
    saved = two.loop.collector.state()
    with follows("parallel/pool.py:Pool.load_state") as advice:
        one.loop.collector.load_state(*saved)
    assert advice.assigned() == [{"workers": 2, "ahead": 0}]
    two.loop.collector.load_state(*saved)
    for run in (one, two):
        run.loop.collector.close()


def test_environments_of_an_agent_in_processes() -> None:
    def remote(envs: int, processes: int) -> Remote:
        made = [gymnasium.make("CartPole-v1") for _ in range(envs)]
        return Remote("Some", made, 3, processes)

    with follows("parallel/remote.py:Remote.__init__") as advice:
        remote(1, 2)
    assert "as many environments as processes" in advice.fix and "fewer processes" in advice.fix
    one, two = remote(1, 1), remote(2, 2)
    for each in (one, two):
        each.reset()
        each.step(np.zeros(each.n, np.int64))
    saved = one.state()
    with follows("parallel/remote.py:Remote.load_state") as advice:
        two.load_state(*saved)
    assert advice.assigned() == [{"processes": 1}]
    one.load_state(*saved)
    three = remote(3, 2)
    three.reset()
    with follows("envs/vector.py:other_number") as advice:
        two.load_state(*(saved := three.state()))
    assert advice.fix == "make 3 environments."
    again = remote(3, 2)
    again.load_state(*saved)
    for each in (one, two, three, again):
        each.close()


def test_where_ray_is_not_installed(monkeypatch: Any) -> None:
    with monkeypatch.context() as patched, follows("parallel/ray.py:library") as advice:
        patched.delitem(bridge.sys.modules, "ray", raising=False)
        patched.setattr(bridge.importlib.util, "find_spec", lambda name: None)
        bridge.library()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    name, extra = advice.quoted().rstrip("]").split("[")
    assert name == project["name"] and advice.fix.startswith("pip install")
    assert any(each.startswith("ray") for each in project["optional-dependencies"][extra])


def test_processes_where_there_is_no_posix(monkeypatch) -> None:
    given = {"framework": "torch", "envs": 2, "steps": 32, "plots": False, "final_episodes": 1}
    given |= {"rollout": 8, "batch_size": 8, "eval_episodes": 0}
    with monkeypatch.context() as patch:
        patch.setattr("tandem.platforms.os", SimpleNamespace(**vars(os) | {"name": "nt"}))
        with follows("platforms.py:check_processes") as advice:
            trainer.train("ppo", "CartPole-v1", workers=1, **given)
        assert advice.fix == "train without them, one seed after another."
        trainer.train("ppo", "CartPole-v1", **given)
