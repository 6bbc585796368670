"""Environments that are wrong in one thing, and right once it is given otherwise."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

TWO, PAIR = spaces.Discrete(2), spaces.Box(0, 1, (2,), np.float32)


class Toy(gymnasium.Env):
    """Its spaces, and what a step of it gives, are what it is made with. An episode has 9 steps."""

    def __init__(
        self,
        observation_space: Any = PAIR,
        action_space: Any = TWO,
        *,
        obs: Any = None,
        reward: Any = 1.0,
        terminated: Any = False,
        info: Any = None,
        fault: str = "",
    ) -> None:
        self.observation_space, self.action_space = observation_space, action_space
        self.obs, self.reward, self.terminated = obs, reward, terminated
        self.info, self.fault, self.t = info or {}, fault, 0

    def seen(self) -> Any:
        zeros = np.zeros(self.observation_space.shape or (), self.observation_space.dtype)
        return zeros if self.obs is None or self.t == 0 else self.obs

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.t = 0
        return self.seen(), dict(self.info)

    def step(self, action: Any) -> Any:
        self.t += 1
        if self.fault:
            raise KeyError(self.fault)
        return self.seen(), self.reward, self.terminated, self.t >= 9, dict(self.info)


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
