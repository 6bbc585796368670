"""A known game with goals, as Gymnasium-Robotics has them."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from tandem.testing.environments import Action, Game
from tandem.types import Array


class BitFlip(Game):
    """Each action flips one of `bits` bits, until they are those of the goal: -1 a step where they
    are not (Andrychowicz et al. 2017, section 3.1). Cut after `bits` steps.

    An episode that never arrives returns -bits. At best it returns as many -1 as bits differ at
    first, less one, so -(bits / 2 - 1) in the mean, or a little more.
    """

    def __init__(self, bits: int = 6) -> None:
        self.bits, self.length = bits, bits
        box = spaces.Box(0.0, 1.0, (bits,), np.float32)
        names = ("observation", "achieved_goal", "desired_goal")
        self.observation_space = spaces.Dict(dict.fromkeys(names, box))
        self.action_space = spaces.Discrete(bits)

    def begin(self) -> None:
        """Of a new episode: where it starts, and where it is to arrive."""
        self.state, self.goal = self.np_random.integers(0, 2, (2, self.bits)).astype(np.float32)

    def play(self, action: Action) -> tuple[float, bool]:
        self.state[int(action)] = 1.0 - self.state[int(action)]
        reward = float(self.compute_reward(self.state, self.goal, {}))
        return reward, reward == 0.0

    def observe(self) -> dict[str, Array]:
        """What is seen."""
        return {
            "observation": self.state.copy(),
            "achieved_goal": self.state.copy(),
            "desired_goal": self.goal.copy(),
        }

    def compute_reward(self, achieved: Array, desired: Array, info: object) -> Array:
        """-1 where a bit differs, else 0; [...] of [..., bits]."""
        return -(achieved != desired).any(-1).astype(np.float32)

    def compute_terminated(self, achieved: Array, desired: Array, info: object) -> Array:
        """Whether no bit differs; [...]."""
        return (achieved == desired).all(-1)
