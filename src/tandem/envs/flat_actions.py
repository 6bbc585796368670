"""The one place where actions of several axes, and Dicts and Tuples of actions, become vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils import RecordConstructorArgs

from tandem.envs.action_masks import with_masks
from tandem.spaces import action_leaf
from tandem.vector_actions import restored, vector_space


class FlatActions(gymnasium.ActionWrapper, RecordConstructorArgs):  # type: ignore[misc]
    """Takes vectors for the environment's actions, see `spaces.vector_space`; actions as the
    environment has them are handed on."""

    def __init__(self, env: Any) -> None:
        RecordConstructorArgs.__init__(self)
        gymnasium.ActionWrapper.__init__(self, env)
        self.action_space = vector_space(env.action_space)
        self._restored = restored(action_leaf(self.action_space, {}))

    def action(self, action: Any) -> Any:
        if isinstance(action, np.ndarray) and action.shape == self.action_space.shape:
            return self._restored(action)
        return action


def adapted(envs: Sequence[Any]) -> list[Any]:
    """Returns environments of one kind as algorithms take them: masks are in observations (the
    first one is reset to look for them), and actions of one agent are numbers or vectors."""
    first = envs[0].unwrapped
    if not hasattr(first, "rewards_space") and vector_space(envs[0].action_space) is not None:
        return with_masks([FlatActions(env) for env in envs])  # masks are of the vectors' choices
    return with_masks(envs)
