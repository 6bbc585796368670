"""A user's `reward_done_func` as what hindsight asks."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from tandem.envs.goals import ACHIEVED, GOAL, OBSERVATION
from tandem.types import Array, Tree


class JudgedGoals:
    """Goals as a function (next_state, goal) -> (reward, done) has them. It is tried on a whole
    batch; where it gives anything but what it gives for single items, items it is, and a warning
    says so once."""

    def __init__(self, function: Callable[[Array, Array], Any]) -> None:
        self.function = function
        self._whole: bool | None = None  # whether it takes batches; None: not known yet

    def achieved(self, obs: Tree) -> Array:
        return obs.get(ACHIEVED, obs[OBSERVATION])

    def put(self, obs: Tree, goal: Array) -> Tree:
        return {**obs, GOAL: goal.astype(obs[GOAL].dtype)}

    def judge(self, next_obs: Tree, goal: Array) -> tuple[Array, Array]:
        state = next_obs[OBSERVATION]
        if self._whole:
            return self._batch(state, goal)
        single = [self.function(s, g) for s, g in zip(state, goal, strict=True)]
        reward, done = (
            np.array([np.asarray(one[i]).reshape(()) for one in single]) for i in (0, 1)
        )
        reward, done = reward.astype(np.float32), done.astype(np.bool_)
        if self._whole is None and len(goal) > 1:
            self._whole = self._agrees(state, goal, reward, done)
        return reward, done

    def _batch(self, state: Array, goal: Array) -> tuple[Array, Array]:
        reward, done = self.function(state, goal)
        return np.asarray(reward, np.float32), np.asarray(done, np.bool_)

    def _agrees(self, state: Array, goal: Array, reward: Array, done: Array) -> bool:
        try:
            both = self._batch(state, goal)
            if all(
                x.shape == y.shape and np.allclose(x, y)
                for x, y in zip(both, (reward, done), strict=True)
            ):
                return True
            why = (
                f"for {len(goal)} items it gave shapes {both[0].shape} and {both[1].shape}, or "
                "other values than one by one"
            )
        except Exception as error:  # whatever a function for single items comes to with many
            why = f"{type(error).__name__}: {error}"
        warnings.warn(
            f"reward_done_func cannot take a batch ({why}); it is called for each item, which is "
            "slower. Compute over the last"
            " axis, with np.where instead of if.",
            stacklevel=2,
        )
        return False
