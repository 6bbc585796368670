"""Conversion of an algorithm's actions to an environment's, and random actions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import get_args

import numpy as np

from tandem import ops
from tandem.errors import SpaceError, one_of
from tandem.math.masks import evenly
from tandem.spaces import ActionMode, Leaf
from tandem.types import Array, Tree


def to_environment(leaf: Leaf, mode: ActionMode = "as_is") -> Callable[[Array], Array]:
    """Return the function that converts an algorithm's actions [N, ...] to the environment's.

    The results have the dtype of the action space. An algorithm's discrete actions count from 0,
    whatever the space's start.

    Args:
        leaf: Action spec.
        mode: For boxes. "as_is" leaves actions unchanged; "clip" clips them to the bounds
            (Gaussian policies); "unit" maps [-1, 1] to the bounds (tanh policies).

    Raises:
        SpaceError: "unit" requires a float box with finite bounds that are not `far`.
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


def random_actions(action: Leaf, n: int, rng: np.random.Generator, obs: Tree) -> Array:
    """Sample n random actions in the environment's format, valid under the masks of observations
    [n, ...]."""
    if action.masked:
        noise = rng.random((n, action.width), dtype=np.float32)
        return (evenly(noise, obs, action) + action.start).astype(action.dtype)
    if action.kind == "dict":
        drawn = [
            random_actions(replace(part, start=0, own_shape=None), n, rng, obs).reshape(n, -1)
            for _, part in action.parts
        ]
        return np.concatenate(drawn, -1).astype(np.float32)
    if action.kind == "box":
        low, high = (np.reshape(b, action.shape) for b in (action.low, action.high))
        near = np.clip(0.0, low, high)
        low, high = np.maximum(low, near - 1e3), np.minimum(high, near + 1e3)
        return rng.uniform(low, high, (n, *action.shape)).astype(action.dtype)
    sizes = np.array(action.sizes or 2).reshape(
        action.shape if action.kind == "multidiscrete" else ()
    )
    return (rng.integers(0, sizes, (n, *action.shape)) + action.start).astype(action.dtype)
