"""An environment of small pictures, in which nothing is to be learned: "Pictures-v0"."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np


class Pictures(gym.Env[Any, Any]):
    """Shows noise for 20 steps; the reward is the action."""

    observation_space = gym.spaces.Box(0, 255, (36, 36, 1), np.uint8)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._t = 0
        return self._picture(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._t += 1
        return self._picture(), float(action), False, self._t >= 20, {}

    def _picture(self) -> Any:
        return self.np_random.integers(0, 255, (36, 36, 1)).astype(np.uint8)


gym.register("Pictures-v0", Pictures)
