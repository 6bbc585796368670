"""A wrapper for games that wait for FIRE before anything moves."""

from __future__ import annotations

from typing import Any

import gymnasium

FIRE = 1  # its place among the actions of every game that has it


class Fire(gymnasium.Wrapper):  # type: ignore[misc]
    """Presses FIRE for one step as an episode, and every further life in it, begins (OpenAI
    Baselines' FireResetEnv does the first). A policy that never presses it would otherwise sit
    through half an hour of nothing, the limit of a game."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self._lives = 0

    def reset(self, **how: Any) -> Any:
        """As the environment's own, one step later."""
        seen, info = self.env.reset(**how)
        after, _, terminated, truncated, more = self.env.step(FIRE)
        self._lives = self.unwrapped.ale.lives()
        if terminated or truncated:  # pressing it again would end it again
            seen, info = self.env.reset(**how)
            self._lives = self.unwrapped.ale.lives()
            return seen, info
        return after, {**info, **more}

    def step(self, action: Any) -> Any:
        """As the environment's own; the step that lost a life is two."""
        seen, reward, terminated, truncated, info = self.env.step(action)
        lost, self._lives = self._lives, self.unwrapped.ale.lives()
        if terminated or truncated or self._lives >= lost:
            return seen, reward, terminated, truncated, info
        seen, more, terminated, truncated, info = self.env.step(FIRE)
        self._lives = self.unwrapped.ale.lives()
        return seen, reward + more, terminated, truncated, info
