"""Conversion between NumPy arrays and those of other libraries, such as torch and JAX, by DLPack
(https://dmlc.github.io/dlpack). Arrays in CPU memory are shared, not copied. No library is imported
for it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tandem.types import Array, Tree

CPU = 1  # DLPack's device type of CPU memory


def to_numpy(x: Array) -> Array:
    """Convert x to a NumPy array, which shares x's memory if that is on the CPU and may be
    read-only."""
    if isinstance(x, np.ndarray) or not hasattr(x, "__dlpack__"):
        return np.asarray(x)
    x = x.detach() if hasattr(x, "detach") else x
    if x.__dlpack_device__()[0] != CPU:
        return np.asarray(x.cpu() if hasattr(x, "cpu") else x)  # copy to the host
    try:
        return np.from_dlpack(x)
    except (BufferError, RuntimeError, TypeError):  # a dtype unknown to DLPack or NumPy
        return np.asarray(x)


def library_of(x: object) -> str:
    """Return "torch", "jax", or "" for anything else."""
    library = type(x).__module__.partition(".")[0]
    return {"torch": "torch", "jax": "jax", "jaxlib": "jax"}.get(library, "")


def maker(like: Array) -> Callable[[Array], Array] | None:
    """Return the function that converts NumPy arrays to `like`'s library and device; None if that
    is NumPy."""
    library = library_of(like)
    if library == "torch":
        from_dlpack, device = sys.modules["torch"].from_dlpack, like.device
        return lambda x: from_dlpack(x).to(device)
    if library == "jax":
        put, device = sys.modules["jax"].device_put, like.device
        return lambda x: put(x, device)
    return None


def off_host(x: Array) -> bool:
    """Return true for a torch or JAX tensor that is not in CPU memory."""
    return bool(library_of(x)) and x.__dlpack_device__()[0] != CPU


def kept(x: Array, dtype: str) -> Array:
    """Convert a tensor to the dtype, on its device, as a copy that no other code modifies."""
    library = sys.modules[library_of(x)]
    if library_of(x) == "torch":
        return x.detach().to(getattr(library, dtype), copy=True)
    return library.numpy.asarray(x, dtype)


def dtype_of(x: Array) -> np.dtype[Any]:
    """Return the NumPy dtype of a tensor."""
    return np.dtype(str(x.dtype).rpartition(".")[2])


def stacked(rows: Sequence[Array]) -> Array:
    """Stack arrays or tensors of equal shape along a new first axis."""
    return np.stack(rows) if not library_of(rows[0]) else _functions(rows[0]).stack(rows)


def replaced(x: Array, which: Array, new: Array) -> Array:
    """Replace the rows of x [N, ...] by those of `new` where `which` [N]; NumPy arrays in place."""
    if not library_of(x):
        x[which] = new[which]
        return x
    wide = which.reshape(-1, *(1,) * (len(x.shape) - 1))
    make = maker(x)
    assert make is not None
    return _functions(x).where(make(wide), new, x)


def is_finite(x: Array) -> bool:
    """Return true if a tensor has no NaN or infinity."""
    return bool(_functions(x).isfinite(x).all())


def _functions(x: Array) -> Any:
    library = sys.modules[library_of(x)]
    return library if library_of(x) == "torch" else library.numpy


def bits_of(mask: Tree) -> Array:
    """Return a mask as a flat int8 array of zeros and ones. Masks in parts, as
    MultiDiscrete.sample accepts them, are concatenated, including nested tuples."""
    if isinstance(mask, (tuple, list)) and (
        getattr(mask[0], "ndim", isinstance(mask[0], (tuple, list)))
    ):
        return np.concatenate([bits_of(part) for part in mask])
    return (to_numpy(mask) != 0).astype(np.int8).reshape(-1)  # may have the action's axes
