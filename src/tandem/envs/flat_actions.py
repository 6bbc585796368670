"""Flattening of actions with several axes, and of Dict and Tuple actions, to vectors."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils import RecordConstructorArgs

from tandem.envs.opening import reset
from tandem.spaces import action_leaf
from tandem.vector_actions import restored, taken_space


class FlatActions(gymnasium.ActionWrapper, RecordConstructorArgs):  # type: ignore[misc]
    """Wrapper that accepts flat vectors as actions, see `vector_actions.vector_space`. Actions in
    the environment's format are passed on."""

    def __init__(self, env: gymnasium.Env) -> None:
        RecordConstructorArgs.__init__(self)
        gymnasium.ActionWrapper.__init__(self, env)
        self.action_space = taken_space(env.action_space)
        self._restored = restored(action_leaf(self.action_space, {}))

    def reset(self, **kwargs: object) -> Any:
        return reset(self.env, **kwargs)

    def action(self, action: Any) -> Any:
        if isinstance(action, np.ndarray) and action.shape == self.action_space.shape:
            return self._restored(action)
        return action
