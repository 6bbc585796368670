"""Access to an environment's goals, for hindsight replay."""

from __future__ import annotations

from typing import Any

import numpy as np

from tandem.envs.factory import EnvLike, brings_vector, environment_name, make, separate
from tandem.envs.opening import look
from tandem.envs.vector import closed_on_error
from tandem.errors import SettingError
from tandem.replay.hindsight import INFO, DictGoals, Info
from tandem.spaces import Leaf, Spec
from tandem.types import EnvKwargs, JSONDict, Tree


def goals_of(
    env: EnvLike, kwargs: EnvKwargs | None, observation: Spec, copy_info: bool
) -> DictGoals:
    """Return the environment's goal functions, from an instance created for this purpose. They are
    called once as a test; with `copy_info` the instance takes a step to find the entries of its
    info. Raise SettingError if its goals do not follow Gymnasium-Robotics."""

    if brings_vector(env):
        raise SettingError(
            f"hindsight is not supported with {environment_name(env)}, a vector of environments.",
            "an environment with compute_reward, or a function that makes one",
            "give the environment itself, and envs=4 for four of them; or give hindsight='no'.",
        )
    # a step would disturb an environment that is used for training
    made = make(separate(env) if copy_info else env, kwargs)
    closes = [] if made is env else [made.close]
    with closed_on_error(*closes):
        return _goals_of(made, closes, environment_name(env), observation, copy_info)


def _goals_of(
    made: Any, closes: list[Any], name: str, observation: Spec, copy_info: bool
) -> DictGoals:
    from tandem.envs.goals import ACHIEVED, GOAL  # imports Gymnasium, which --help does not need

    judge = getattr(made.unwrapped, "compute_reward", None)
    found = isinstance(observation, dict) and {ACHIEVED, GOAL} <= observation.keys()
    if not found or not callable(judge):
        raise SettingError(
            f"hindsight requires goals, which {name} does not have.",
            "Dict observations with achieved_goal and desired_goal, and a batched "
            "compute_reward(achieved, desired, info), as in Gymnasium-Robotics",
            "give hindsight='no'.",
        )
    seen = look(made)[0]
    info: JSONDict = {}
    if copy_info:
        made.action_space.seed(0)
        info = {n: np.asarray(x) for n, x in made.step(made.action_space.sample())[4].items()}
    info = {n: x for n, x in info.items() if x.dtype.kind in "biuf"}
    stored = {INFO + n: Leaf("box", x.shape, str(x.dtype)) for n, x in info.items()}
    terminated = getattr(made.unwrapped, "compute_terminated", None)
    goals = DictGoals(judge, terminated, stored, *closes, **({"env": made} if closes else {}))
    _try(goals, seen, Info({n: np.stack([x, x]) for n, x in info.items()}), name)
    return goals


def _try(goals: DictGoals, seen: Tree, info: Info, name: str) -> None:
    """Raise SettingError unless the functions accept a batch of two goals."""
    achieved, desired = (np.stack([seen[key]] * 2) for key in ("achieved_goal", "desired_goal"))
    try:
        shapes = [np.shape(x) for x in goals.judge({"achieved_goal": achieved}, desired, info)]
    except SettingError:  # an entry of info that is not stored
        raise
    except Exception as error:  # any exception of the user's function
        told = f"{type(error).__name__}: {error}"
        raise _no_batches(name, f"raises {told} for two goals at once") from error
    if shapes != [(2,), (2,)]:
        raise _no_batches(name, f"returns {shapes[0]} rewards and {shapes[1]} ends for two goals")


def _no_batches(name: str, happened: str) -> SettingError:
    return SettingError(
        f"hindsight cannot use {name}: compute_reward or compute_terminated {happened}.",
        "functions of (achieved, desired, info) over batches [B, n]: one number for each row",
        "vectorize them, as in np.linalg.norm(achieved - desired, axis=-1); or give "
        "hindsight='no'.",
    )
