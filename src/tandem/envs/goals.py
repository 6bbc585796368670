"""Environments with a goal that is not part of their observations."""

from __future__ import annotations

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

from tandem.envs.opening import look, reset
from tandem.errors import EnvironmentFault
from tandem.types import Array, Info, Tree

OBSERVATION, GOAL, ACHIEVED = "observation", "desired_goal", "achieved_goal"


class WithGoal(gymnasium.Wrapper, RecordConstructorArgs):  # type: ignore[misc]
    """Wrapper with observations {"observation": the environment's observation, "desired_goal": the
    current value of its attribute `goal`}."""

    def __init__(self, env: gymnasium.Env) -> None:
        RecordConstructorArgs.__init__(self)
        gymnasium.Wrapper.__init__(self, env)
        if getattr(env, "goal", None) is None:
            look(env)
        goal = self._goal()
        self.observation_space = spaces.Dict(
            {
                OBSERVATION: env.observation_space,
                GOAL: spaces.Box(-np.inf, np.inf, goal.shape, np.float32),
            }
        )

    def reset(self, **kwargs: object) -> tuple[Tree, Info]:
        obs, info = reset(self.env, **kwargs)
        return {OBSERVATION: obs, GOAL: self._goal()}, info

    def step(self, action: Array) -> tuple[Tree, float, bool, bool, Info]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        return {OBSERVATION: obs, GOAL: self._goal()}, reward, terminated, truncated, info

    def _goal(self) -> Array:
        goal = getattr(self.env, "goal", None)
        if goal is None:
            raise EnvironmentFault(
                f"{type(self.env).__name__} has no goal.",
                "Dict observations with achieved_goal and desired_goal, or an attribute `goal`",
                "set self.goal in reset to an array like those passed to reward_done_func.",
            )
        return np.array(goal, np.float32)  # a copy: the environment may modify it in place


def with_goal(env: gymnasium.Env) -> gymnasium.Env:
    """Return the environment unchanged if its observations include goals, else as a `WithGoal`."""
    space = env.observation_space
    has = isinstance(space, spaces.Dict) and {OBSERVATION, GOAL, ACHIEVED} <= set(space.spaces)
    return env if has else WithGoal(env)


def joined(obs: Tree) -> Array:
    """Return the networks' input [..., S + G]: observation and goal, concatenated."""
    return np.concatenate([obs[OBSERVATION], obs[GOAL]], -1)
