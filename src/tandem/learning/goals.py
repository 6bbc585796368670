"""What hindsight replay needs of an environment with goals."""

from __future__ import annotations

from typing import Any

import numpy as np

from tandem.envs.factory import EnvLike, environment_name, make
from tandem.envs.vector import opened
from tandem.errors import SettingError
from tandem.replay.hindsight import DictGoals
from tandem.spaces import Spec


def goals_of(env: EnvLike, kwargs: Any, observation: Spec) -> DictGoals:
    """How the environment judges goals, by an environment made for nothing else, which is asked
    once. SettingError where it does not have goals as Gymnasium-Robotics has them."""
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
    goals = DictGoals(judge, getattr(made.unwrapped, "compute_terminated", None))
    _try(goals, made, environment_name(env))
    return goals


def _try(goals: DictGoals, made: Any, name: str) -> None:
    """SettingError unless it judges two goals at once, with nothing in `info`."""
    seen = [opened(name, made.reset(seed=seed))[0] for seed in (0, 1)]
    achieved, desired = (
        np.stack([obs[key] for obs in seen]) for key in ("achieved_goal", "desired_goal")
    )
    try:
        shapes = [np.shape(x) for x in goals.judge({"achieved_goal": achieved}, desired)]
    except Exception as error:  # whatever a function of the user's comes to
        told = f"{type(error).__name__}: {error}"
        raise _no_batches(name, f"raises {told} for two goals at once") from error
    if shapes != [(2,), (2,)]:
        raise _no_batches(name, f"gives {shapes[0]} rewards and {shapes[1]} ends for two goals")


def _no_batches(name: str, happened: str) -> SettingError:
    return SettingError(
        f"hindsight with {name}, whose compute_reward or compute_terminated {happened}.",
        "functions of (achieved, desired, info) over batches [B, n], with an empty info: one "
        "number for each row",
        "write them so, say by np.linalg.norm(achieved - desired, axis=-1); or give "
        "hindsight='no'.",
    )
