"""Game with a known solution, and actions with several parts and axes."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from tandem.testing.environments import Identity
from tandem.types import Tree


class Parts(Identity):
    """Each step shows one of three symbols k. The reward is 1 for choosing k, plus up to 1 for the
    bits of k, minus the distance of a 2 x 1 box from (k - 1) / 2; at most 2 per step."""

    def __init__(self, length: int = 10) -> None:
        super().__init__(3, length)
        self.optimum = 2.0 * length
        self.action_space = spaces.Dict(
            {
                "aim": spaces.Box(-1, 1, (2, 1), np.float32),
                "bits": spaces.MultiBinary(2),
                "rest": spaces.Tuple((spaces.Discrete(3, start=5), spaces.MultiDiscrete([2, 2]))),
            }
        )

    def begin(self) -> None:
        self.symbol = int(self.np_random.integers(3))

    def play(self, action: Tree) -> tuple[float, bool]:
        k = int(self.symbol)
        if action not in self.action_space:
            raise ValueError(f"{action} is not in {self.action_space}")
        choice, _ = action["rest"]
        bits = np.array([k & 1, k >> 1])
        paid = float(choice - 5 == k) + float(np.mean(action["bits"] == bits))
        paid -= float(np.abs(action["aim"] - (k - 1) / 2).mean())
        self.begin()
        return paid, False
