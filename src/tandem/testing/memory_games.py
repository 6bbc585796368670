"""Environments that no policy without a memory solves."""

from __future__ import annotations

from typing import ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces

from tandem.testing.environments import Game
from tandem.types import Array, Tree


class Recall(Game):
    """Remember the symbol that is seen first, and say it in the last of `length` steps, when
    nothing is to be seen: reward 1 if right, else 0; all else pays 0. Symbols 0 to n - 1 are drawn
    uniformly, and n stands for nothing to be seen; terminates.

    optimum = 1, without a memory 1 / n; value at the first state = gamma ** (length - 1).
    """

    optimum = 1.0

    def __init__(self, n: int = 2, length: int = 3) -> None:
        self.n, self.steps, self.length = n, length, length + 1
        self.observation_space, self.action_space = spaces.Discrete(n + 1), spaces.Discrete(n)
        self.symbol = 0

    def begin(self) -> None:
        self.symbol = int(self.np_random.integers(self.n))

    def observe(self) -> Tree:
        return np.int64(self.symbol if self.t == 0 else self.n)

    def play(self, action: Array) -> tuple[float, bool]:
        over = self.t == self.steps
        return float(over and action == self.symbol), over

    def value(self, gamma: float) -> float:
        return float(gamma ** (self.steps - 1))


class Positions(gymnasium.ObservationWrapper[Tree, Array, Tree]):
    """An environment of Gymnasium's, of which only some numbers of an observation are seen."""

    whole: ClassVar[str]  # its id
    seen: ClassVar[list[int]]  # places of the numbers

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(gymnasium.make(self.whole, render_mode=render_mode).unwrapped)
        space: spaces.Box = self.env.observation_space
        self.observation_space = spaces.Box(
            space.low[self.seen], space.high[self.seen], dtype=np.float32
        )

    def observation(self, observation: Tree) -> Array:
        return observation[self.seen]


class CartPolePositions(Positions):
    """Gymnasium's CartPole without its velocities: only the cart's place and the pole's angle are
    seen, so that one observation does not tell what to do. Cut after 500 steps, as CartPole-v1 is,
    where it is made by its id."""

    optimum = 500.0
    whole, seen = "CartPole-v1", [0, 2]


class PendulumPositions(Positions):
    """Gymnasium's Pendulum without its angular velocity: only the cosine and the sine of the angle
    are seen. Cut after 200 steps, as Pendulum-v1 is, where it is made by its id."""

    whole, seen = "Pendulum-v1", [0, 1]
