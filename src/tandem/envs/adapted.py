"""Wrappers that every environment of the trainer API gets, unless a native vector does the same
itself."""

from __future__ import annotations

from collections.abc import Sequence

import gymnasium

from tandem.envs.action_masks import Masked, gives_masks, with_masks
from tandem.envs.flat_actions import FlatActions
from tandem.errors import SpaceError
from tandem.vector_actions import vector_space


def adapted(envs: Sequence[gymnasium.Env]) -> list[gymnasium.Env]:
    """Adapt environments of one type to algorithms: masks become part of observations, and actions
    of a single agent become numbers or vectors. Teams and plain actions return early."""
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
