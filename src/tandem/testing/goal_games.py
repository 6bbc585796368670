"""Game with a known solution and goals, in the format of Gymnasium-Robotics."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from tandem.testing.environments import Action, Game
from tandem.types import Array


class BitFlip(Game):
    """Bit flipping (Andrychowicz et al. 2017, section 3.1): each action flips one of `bits` bits,
    with a reward of -1 per step until they equal the goal. Truncated after `bits` steps.

    An episode that misses the goal returns -bits. The best return is 1 minus the number of bits
    that differ initially; its mean is -(bits / 2 - 1), or slightly less.
    """

    def __init__(self, bits: int = 6) -> None:
        self.bits, self.length = bits, bits
        box = spaces.Box(0.0, 1.0, (bits,), np.float32)
        names = ("observation", "achieved_goal", "desired_goal")
        self.observation_space = spaces.Dict(dict.fromkeys(names, box))
        self.action_space = spaces.Discrete(bits)

    def begin(self) -> None:
        """Sample the first state and the goal of an episode."""
        self.state, self.goal = self.np_random.integers(0, 2, (2, self.bits)).astype(np.float32)

    def play(self, action: Action) -> tuple[float, bool]:
        self.state[int(action)] = 1.0 - self.state[int(action)]
        reward = float(self.compute_reward(self.state, self.goal, {}))
        return reward, reward == 0.0

    def observe(self) -> dict[str, Array]:
        """Return the observation."""
        return {
            "observation": self.state.copy(),
            "achieved_goal": self.state.copy(),
            "desired_goal": self.goal.copy(),
        }

    def compute_reward(self, achieved: Array, desired: Array, info: object) -> Array:
        """Return rewards [...] for [..., bits]: -1 if a bit differs, else 0."""
        return -(achieved != desired).any(-1).astype(np.float32)

    def compute_terminated(self, achieved: Array, desired: Array, info: object) -> Array:
        """Return true [...] where no bit differs."""
        return (achieved == desired).all(-1)
