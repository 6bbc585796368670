"""Environments whose every number can be said beforehand."""

from typing import Any

import numpy as np
from gymnasium import spaces


class Clock:
    """Observes the step and how many episodes have ended, rewards the step; ends after `length`.
    Step `at` of its life raises."""

    def __init__(self, length: int = 5, cut: bool = False, choices: int = 2, at: int = 0) -> None:
        self.length, self.cut, self.episode, self.at = length, cut, 0, at
        self.action_space = spaces.Discrete(choices)
        self.actions: list[Any] = []

    def reset(self) -> Any:
        self.t = 0
        return np.array([0.0, self.episode], np.float32)

    def count(self, action: Any) -> None:
        self.t += 1
        self.actions.append(action)
        if len(self.actions) == self.at:
            raise RuntimeError("unplugged")

    def step(self, action: Any) -> Any:
        self.count(action)
        done = self.t == self.length
        info = {"TimeLimit.truncated": True} if done and self.cut else {}
        obs = np.array([self.t, self.episode], np.float32)
        self.episode += done
        return obs, float(self.t), done, info


class Walk(Clock):
    """Ends after as many steps as its seed says, and shows it: an episode can be played again."""

    def reset(self, seed: int = 0) -> Any:
        self.t, self.episode, self.length = 0, seed % 100, 4 + seed % 5
        return np.array([0.0, self.episode / 100], np.float32)

    def step(self, action: Any) -> Any:
        self.count(int(action))
        obs = np.array([self.t, self.episode / 100], np.float32)
        return obs, float(self.t + action), self.t == self.length, {}
