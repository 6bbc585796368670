"""Environments and short runs that the tests of advice share, and machines that lack something."""

import re
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from tandem import trainer
from tests.helpers import ROOT

QUIET = {"plots": False, "tensorboard": False, "eval_episodes": 0, "framework": "torch"}
SHORT: dict[str, Any] = {"steps": 32, "hidden": (8,), "final_episodes": 1, **QUIET}
PAIR, TWO = spaces.Box(0, 1, (2,), np.float32), spaces.Discrete(2)


class Toy(gymnasium.Env):
    """An episode has 9 steps, each of which is worth `reward`."""

    def __init__(self, action_space: Any = TWO) -> None:
        self.observation_space, self.action_space = PAIR, action_space
        self.reward, self.t = 1.0, 0

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        return np.zeros(2, np.float32), self.reward, False, self.t >= 9, {}


def made(algorithm: str = "ppo", env: Any = "CartPole-v1", **given: Any) -> None:
    """A session, made and given up."""
    run = trainer.session(algorithm, env, **{**QUIET, **given})
    run.loop.collector.close()


def ran(algorithm: str = "ppo", env: Any = "CartPole-v1", **given: Any) -> None:
    """A session that has come to its end."""
    assert list(trainer.session(algorithm, env, **{**SHORT, **given}))


def steps(environments: Any, n: int = 3, action: int = 1) -> None:
    """Takes n steps in a vector of environments."""
    environments.reset()
    for _ in range(n):
        environments.step(np.full((environments.n, *environments.action.shape), action))
    environments.close()


@contextmanager
def without(monkeypatch: Any, package: str) -> Iterator[None]:
    """As if this package were not installed."""

    class Missing:
        @staticmethod
        def find_spec(name: str, path: Any = None, target: Any = None) -> None:
            if name.partition(".")[0] == package:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    with monkeypatch.context() as meanwhile:
        for name in [n for n in sys.modules if n.partition(".")[0] == package]:
            meanwhile.delitem(sys.modules, name)
        meanwhile.setattr(sys, "meta_path", [Missing, *sys.meta_path])
        yield


def installs(fix: str) -> set[str]:
    """The packages that the "pip install" of a fix, or the extra that it names, leads to."""
    (what,) = re.findall(r"pip install ['\"]?([-\w]+(?:\[[\w,]+\])?)", fix)[:1]
    name, _, extra = what.rstrip("]").partition("[")
    if not extra:
        return {name}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert name == project["name"]
    extras = project["optional-dependencies"]
    return {re.split(r"[>=<\[; ]", one)[0] for part in extra.split(",") for one in extras[part]}
