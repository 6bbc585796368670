"""A wrapper for games that wait for FIRE before anything moves."""

from __future__ import annotations

import gymnasium
from gymnasium.utils import RecordConstructorArgs

from tandem.types import Array, Info, JSONDict, Tree

FIRE = 1  # its place among the actions of every game that has it


class Fire(gymnasium.Wrapper, RecordConstructorArgs):  # type: ignore[misc]
    """Presses FIRE for one step where an episode begins (as OpenAI Baselines' FireResetEnv does),
    and each further life in it. A policy that never presses it would otherwise play nothing for
    half an hour, the limit of a game."""

    def __init__(self, env: gymnasium.Env) -> None:
        RecordConstructorArgs.__init__(self)
        gymnasium.Wrapper.__init__(self, env)
        self._lives = 0

    def reset(
        self, *, seed: int | None = None, options: JSONDict | None = None
    ) -> tuple[Tree, Info]:
        """Returns the environment's own, one step later."""
        obs, info = self.env.reset(seed=seed, options=options)
        after, _, terminated, truncated, more = self.env.step(FIRE)
        self._lives = self.unwrapped.ale.lives()
        if terminated or truncated:  # pressing it again would end it again
            obs, info = self.env.reset(seed=seed, options=options)
            self._lives = self.unwrapped.ale.lives()
            return obs, info
        return after, {**info, **more}

    def step(self, action: Array) -> tuple[Tree, float, bool, bool, Info]:
        """Returns the environment's own; a step that loses a life is followed by a second one."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        before, self._lives = self._lives, self.unwrapped.ale.lives()
        if terminated or truncated or self._lives >= before:
            return obs, reward, terminated, truncated, info
        obs, more, terminated, truncated, info = self.env.step(FIRE)
        self._lives = self.unwrapped.ale.lives()
        return obs, reward + more, terminated, truncated, info
