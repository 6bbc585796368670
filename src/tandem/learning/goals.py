"""What hindsight replay needs of an environment with goals."""

from __future__ import annotations

from typing import Any

from tandem.envs.factory import EnvLike, environment_name, make
from tandem.errors import SettingError
from tandem.replay.hindsight import DictGoals
from tandem.spaces import Spec


def goals_of(env: EnvLike, kwargs: Any, observation: Spec) -> DictGoals:
    """How the environment judges goals, by an environment made for nothing else. SettingError
    where it does not have goals as Gymnasium-Robotics has them."""
    from tandem.envs.goals import ACHIEVED, GOAL  # with Gymnasium, which help does without

    made = make(env, kwargs)
    judge = getattr(made.unwrapped, "compute_reward", None)
    found = isinstance(observation, dict) and {ACHIEVED, GOAL} <= observation.keys()
    if not found or not callable(judge):
        raise SettingError(
            f"hindsight with {environment_name(env)}, which has no goals to exchange.",
            "Dict observations with achieved_goal and desired_goal, and compute_reward(achieved, "
            "desired, info) of batches, as Gymnasium-Robotics has them",
            "give hindsight='no'.",
        )
    return DictGoals(judge, getattr(made.unwrapped, "compute_terminated", None))
