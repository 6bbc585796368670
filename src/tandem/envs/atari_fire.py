"""Wrapper for games that wait for FIRE before anything moves."""

from __future__ import annotations

import gymnasium
from gymnasium.utils import RecordConstructorArgs

from tandem.types import Array, Info, JSONDict, Tree

FIRE = 1  # action index in every game that has it


class Fire(gymnasium.Wrapper, RecordConstructorArgs):  # type: ignore[misc]
    """Wrapper that presses FIRE for one step at the start of an episode (as OpenAI Baselines'
    FireResetEnv does) and of each further life. Otherwise a policy that never presses it would idle
    for half an hour, the time limit of a game."""

    def __init__(self, env: gymnasium.Env) -> None:
        RecordConstructorArgs.__init__(self)
        gymnasium.Wrapper.__init__(self, env)
        self._lives = 0

    def reset(
        self, *, seed: int | None = None, options: JSONDict | None = None
    ) -> tuple[Tree, Info]:
        """Reset the environment and return the result after pressing FIRE."""
        obs, info = self.env.reset(seed=seed, options=options)
        after, _, terminated, truncated, more = self.env.step(FIRE)
        self._lives = self.unwrapped.ale.lives()
        if terminated or truncated:  # another FIRE would end it again
            obs, info = self.env.reset(seed=seed, options=options)
            self._lives = self.unwrapped.ale.lives()
            return obs, info
        return after, {**info, **more}

    def step(self, action: Array) -> tuple[Tree, float, bool, bool, Info]:
        """Step the environment; after a lost life, also press FIRE."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        before, self._lives = self._lives, self.unwrapped.ale.lives()
        if terminated or truncated or self._lives >= before:
            return obs, reward, terminated, truncated, info
        obs, more, terminated, truncated, info = self.env.step(FIRE)
        self._lives = self.unwrapped.ale.lives()
        return obs, reward + more, terminated, truncated, info
