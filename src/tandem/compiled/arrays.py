"""Trees of JAX as named NumPy arrays, for checkpoints, and back."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tandem.types import AnyArray, Tree


def is_key(x: Any) -> bool:
    """Whether an array is of jax.random's keys."""
    return bool(jnp.issubdtype(x.dtype, jax.dtypes.prng_key))


def to_arrays(tree: Tree, name: str) -> dict[str, AnyArray]:
    """The leaves as name/0, name/1, …; of keys their data."""
    return {
        f"{name}/{i}": np.array(jax.random.key_data(x) if is_key(x) else x)
        for i, x in enumerate(jax.tree.leaves(tree))
    }


def from_arrays(like: Tree, name: str, arrays: dict[str, AnyArray]) -> Tree:
    """The tree that `to_arrays` took apart; `like` has its structure and shapes. ValueError for
    arrays of others."""
    leaves, structure = jax.tree.flatten(like)
    made = []
    for i, x in enumerate(leaves):
        array = jnp.array(arrays[f"{name}/{i}"])
        if is_key(x):
            array = jax.random.wrap_key_data(array)
        if (array.shape, array.dtype) != (x.shape, x.dtype):
            raise ValueError(f"{name}/{i} is {array.dtype}{array.shape}, not {x.dtype}{x.shape}")
        made.append(array)
    return jax.tree.unflatten(structure, made)
