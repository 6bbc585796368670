"""Environments that only recurrent policies can solve."""

from __future__ import annotations

from typing import ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces

from tandem.testing.environments import Game
from tandem.types import Array, Tree


class Recall(Game):
    """Recall of the first symbol in the last of `length` steps: reward 1 if right, and 0 for
    everything else. Symbols 0 to n - 1 are sampled uniformly; all later observations are n.
    Terminates.

    optimum = 1, without recurrent state 1 / n; value at the first state = gamma ** (length - 1).
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
    """Gymnasium environment with partial observations."""

    whole: ClassVar[str]  # id of the fully observed environment
    seen: ClassVar[list[int]]  # indices of the observed entries

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(gymnasium.make(self.whole, render_mode=render_mode).unwrapped)
        space: spaces.Box = self.env.observation_space
        self.observation_space = spaces.Box(
            space.low[self.seen], space.high[self.seen], dtype=np.float32
        )

    def observation(self, observation: Tree) -> Array:
        return observation[self.seen]


class CartPolePositions(Positions):
    """Gymnasium's CartPole without velocities: only the cart's position and the pole's angle are
    observed, which is not sufficient to act. If made by its id, it is truncated after 500 steps,
    like CartPole-v1."""

    optimum = 500.0
    whole, seen = "CartPole-v1", [0, 2]


class PendulumPositions(Positions):
    """Gymnasium's Pendulum without its angular velocity: only the cosine and sine of the angle are
    observed. If made by its id, it is truncated after 200 steps, like Pendulum-v1."""

    whole, seen = "Pendulum-v1", [0, 1]
