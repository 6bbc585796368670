"""An environment whose reward nobody finds who does not look for it."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from tandem.testing.environments import Game
from tandem.types import Tree


class Lock(Game):
    """A combination lock: states 0 to n - 1 in a row, from 0. One of the two actions, another in
    each state, leads to the next, the other one back to 0. Reaching the last one pays 1 and
    terminates; all else pays 0. Cut after 4 n steps.

    By chance that takes 2 ** n - 2 steps on average, without the cut. optimum = 1; value of state s
    = gamma ** (n - 2 - s).
    """

    optimum = 1.0

    def __init__(self, n: int = 20) -> None:
        self.n, self.length, self.place = n, 4 * n, 0
        self.observation_space, self.action_space = spaces.Discrete(n), spaces.Discrete(2)
        self.combination = [(s * s + s // 3) % 2 for s in range(n)]

    def begin(self) -> None:
        self.place = 0

    def observe(self) -> Tree:
        return np.int64(self.place)

    def play(self, action: Any) -> tuple[float, bool]:
        self.place = self.place + 1 if action == self.combination[self.place] else 0
        there = self.place == self.n - 1
        return float(there), there

    def value(self, gamma: float, state: int = 0) -> float:
        return float(gamma ** (self.n - 2 - state))
