"""Conversion between JAX pytrees and named NumPy arrays, for checkpoints."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tandem.replay.array_files import BLOCK, StoredArray
from tandem.types import AnyArray, Tree


def is_key(x: Any) -> bool:
    """Return true for an array of jax.random keys."""
    return bool(jnp.issubdtype(x.dtype, jax.dtypes.prng_key))


def to_arrays(tree: Tree, name: str) -> dict[str, AnyArray]:
    """Return the leaves as name/0, name/1, …; keys as their data. Large leaves stay JAX arrays, and
    become invalid with the next call, which donates them."""
    leaves = (jax.random.key_data(x) if is_key(x) else x for x in jax.tree.leaves(tree))
    return {f"{name}/{i}": x if x.nbytes > BLOCK else np.array(x) for i, x in enumerate(leaves)}


def from_arrays(like: Tree, name: str, arrays: dict[str, AnyArray]) -> Tree:
    """Rebuild the tree from the result of `to_arrays`; `like` has its structure and shapes. Raises
    ValueError for arrays that do not match."""
    leaves, structure = jax.tree.flatten(like)
    made = []
    for i, x in enumerate(leaves):
        array = _on_device(arrays[f"{name}/{i}"])
        if is_key(x):
            array = jax.random.wrap_key_data(array)
        if (array.shape, array.dtype) != (x.shape, x.dtype):
            raise ValueError(f"{name}/{i} is {array.dtype}{array.shape}, not {x.dtype}{x.shape}")
        made.append(array)
    return jax.tree.unflatten(structure, made)


def _on_device(array: Any) -> Any:
    """Copy a NumPy array, or block by block a stored one, to the device."""
    if not isinstance(array, StoredArray):
        return jnp.array(array)
    x, rows = jnp.zeros(array.shape, array.dtype), max(1, BLOCK * len(array) // array.nbytes)
    for i in range(0, len(array), rows):
        x = _with_rows(x, np.asarray(array[i : i + rows]), i)
    return x


@partial(jax.jit, donate_argnums=0)
def _with_rows(x: Any, rows: Any, first: Any) -> Any:
    return jax.lax.dynamic_update_slice_in_dim(x, rows, first, 0)
