"""An environment of a package: a corridor to walk along."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete


class Corridor(gymnasium.Env):
    """To the right, to the end: 1 there, -0.01 for each step."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(self, length: int = 5, render_mode: str | None = None) -> None:
        self.length, self.render_mode, self.at = length, render_mode, 0
        self.observation_space, self.action_space = Box(0.0, 1.0, (1,)), Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.at = int(self.np_random.integers(self.length // 2 + 1))
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.at = max(self.at + (1 if action else -1), 0)
        there = self.at >= self.length
        return self._seen(), 1.0 if there else -0.01, there, False, {}

    def render(self) -> Any:
        picture = np.zeros((16, 16 * (self.length + 1), 3), np.uint8)
        picture[:, 16 * self.at : 16 * (self.at + 1)] = 255
        return picture

    def _seen(self) -> Any:
        return np.array([min(self.at / self.length, 1.0)], np.float32)


def register() -> None:
    """Has Gymnasium know the ids."""
    gymnasium.register("maze/Corridor-v0", entry_point=Corridor, max_episode_steps=30)
    gymnasium.register(
        "maze/Long-v0", entry_point=Corridor, max_episode_steps=60, kwargs={"length": 9}
    )
