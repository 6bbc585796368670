"""Flattening of actions with several axes, and of Dict and Tuple actions, to vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils import RecordConstructorArgs

from tandem.envs.action_masks import Masked, gives_masks, with_masks
from tandem.envs.opening import reset
from tandem.errors import SpaceError
from tandem.spaces import action_leaf
from tandem.vector_actions import restored, taken_space, vector_space


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


def adapted(envs: Sequence[gymnasium.Env]) -> list[gymnasium.Env]:
    """Adapt environments of one type to algorithms: masks become part of observations, and actions
    of a single agent become numbers or vectors."""
    first = envs[0]
    for name in ("observation_space", "action_space"):
        if getattr(first, name, None) is None:
            raise SpaceError(
                f"{type(first.unwrapped).__name__} has no {name}.",
                "one of gymnasium.spaces",
                f"set self.{name} in its __init__.",
            )
    if hasattr(first.unwrapped, "rewards_space") or vector_space(first.action_space) is None:
        return with_masks(envs)
    flat = [FlatActions(env) for env in envs]  # masks refer to the flattened choices
    return [Masked(env) for env in flat] if gives_masks(first, flat[0].action_space) else [*flat]
