"""From the actions of an algorithm to those of an environment."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import numpy as np

from tandem import ops
from tandem.errors import SpaceError, one_of
from tandem.spaces import ActionMode, Leaf
from tandem.types import Array


def to_environment(leaf: Leaf, mode: ActionMode = "as_is") -> Callable[[Array], Array]:
    """The function that takes an algorithm's actions [N, ...] to the environment's, in its space's
    own dtype.

    Discrete actions of an algorithm count from 0, whatever the space starts at.
    mode: for boxes: "as_is" leaves actions alone; "clip" cuts them at the bounds (Gaussian
    policies); "unit" stretches [-1, 1] to the bounds (tanh policies) and needs a box of floats with
    finite bounds that are not `far`, else SpaceError.
    """
    one_of("mode", mode, get_args(ActionMode))
    if mode == "unit" and (not (leaf.bounded and leaf.dtype == "float32") or leaf.far):
        raise SpaceError(
            f"actions in [-1, 1] cannot be stretched to a {leaf.kind} of {leaf.dtype} with bounds "
            f"{leaf.low} to {leaf.high}.",
            "a float Box with finite bounds whose difference fits in float32",
            "gymnasium.wrappers.TransformAction(env, function, gymnasium.spaces.Box(-1, 1, "
            f"{leaf.shape})), where function converts these actions to the environment's; or "
            "choose another algorithm.",
        )
    inner = _in_space(leaf, mode)
    return (lambda action: inner(action).astype(leaf.own)) if leaf.own else inner


def _in_space(leaf: Leaf, mode: ActionMode) -> Callable[[Array], Array]:
    if leaf.start:
        return lambda action: action + np.int64(leaf.start)
    if leaf.kind not in ("box", "dict") or mode == "as_is":
        return lambda action: action
    low, high = leaf.bounds
    if mode == "clip":
        return lambda action: _between(action, low, high)
    centre, half = (low + high) / np.float32(2), (high - low) / np.float32(2)
    # rounding may overshoot a bound
    return lambda action: _between(centre + half * action, low, high)


def _between(action: Array, low: Array, high: Array) -> Array:
    xp = ops.of(action)
    return xp.minimum(xp.maximum(action, low), high)
