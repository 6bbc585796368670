"""Conversion of multi-axis actions, and of Dicts and Tuples of actions, to vectors and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from tandem.spaces import Leaf, Path, action_leaf, empty, kind_of, parts_of
from tandem.types import Array, Tree

if TYPE_CHECKING:
    from gymnasium import Space


def vector_space(space: Space) -> Space | None:
    """Return the space (gymnasium.spaces) of vectors that represent the actions of `space`; its
    attribute `inner` is `space`. Applies to Box, MultiDiscrete and MultiBinary spaces that do not
    have exactly one axis, and to Dict and Tuple spaces. Returns None if actions are already scalars
    or vectors."""
    from gymnasium import spaces  # here: see `spaces.gymnasium_space`

    if parts_of(space) is not None:
        parts = [part for _, part in _action_parts(space)]
        if not parts:
            raise empty("actions", space)
        low, high = (np.concatenate(bound) for bound in zip(*map(_limits, parts), strict=True))
        flat = spaces.Box(low, high, dtype=np.float32)
    elif (name := kind_of(space)) == "Box" and len(space.shape) != 1:
        flat = spaces.Box(space.low.ravel(), space.high.ravel(), dtype=space.dtype)
    elif name == "MultiBinary" and len(space.shape) != 1:
        flat = spaces.MultiBinary(prod(space.shape))
    elif name == "MultiDiscrete" and len(space.shape) != 1 and not np.any(space.start):
        flat = spaces.MultiDiscrete(space.nvec.ravel())
    else:
        return None
    flat.inner = space
    if parts_of(space) is not None:
        flat.parts = tuple(_action_parts(space))
    return flat


def taken_space(space: Space) -> Space:
    """Return the space of an algorithm's actions for `space`: `vector_space`, or `space` itself if
    its actions are already scalars or vectors."""
    flat = vector_space(space)
    return space if flat is None else flat


def _action_parts(space: Space) -> Iterator[tuple[Path, Leaf]]:
    """Yield the entries of a Dict or Tuple of actions, including nested ones."""
    for key, inner in parts_of(space) or ():
        if parts_of(inner) is not None:
            yield from (((key, *path), part) for path, part in _action_parts(inner))
            continue
        yield (key,), action_leaf(taken_space(inner), {})


def _limits(part: Leaf) -> tuple[Array, Array]:
    """Return the bounds of the vector that represents a part of a Dict of actions."""
    if part.kind == "box":
        return part.bounds
    highest = np.array(part.sizes or (2,) * prod(part.shape), np.float32) - 1
    return np.zeros_like(highest), highest


def restored(action: Leaf) -> Callable[[Array], Tree]:
    """Return the function from an algorithm's actions [..., D] to the environment's: in their own
    shape, or as entries of a Dict or Tuple."""
    if (shape := action.own_shape) is not None:
        return lambda x: x.reshape((*x.shape[:-1], *shape))
    if not action.parts:
        return lambda x: x

    def entries(x: Array) -> Tree:
        made: dict[str | int, Tree] = {}
        begin = 0
        for path, part in action.parts:
            end = begin + prod(part.shape)
            inside = reduce(lambda d, key: d.setdefault(key, {}), path[:-1], made)
            inside[path[-1]] = _restored_part(part, x[..., begin:end])
            begin = end
        return _as_containers(made)

    return entries


def _restored_part(part: Leaf, x: Array) -> Array:
    x = x.astype(part.own or part.dtype) if part.kind == "box" else np.rint(x).astype(part.dtype)
    if part.kind == "discrete":
        return x[..., 0] + part.start
    return restored(part)(x)


def _as_containers(made: Tree) -> Tree:
    """Convert dicts with integer keys to tuples."""
    if not isinstance(made, dict):
        return made
    inner = {key: _as_containers(value) for key, value in made.items()}
    return tuple(inner.values()) if all(isinstance(key, int) for key in inner) else inner
