"""Arrays of other libraries, torch's and JAX's among them, read as NumPy's and made of them, by
DLPack (https://dmlc.github.io/dlpack): what lies in this memory is shared, not copied. No library
is imported for it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tandem.types import Array, Tree

CPU = 1  # DLPack's number of this memory


def to_numpy(x: Array) -> Array:
    """A NumPy array with the numbers of x, in x's own memory where that is this one; it may be
    read-only."""
    if isinstance(x, np.ndarray) or not hasattr(x, "__dlpack__"):
        return np.asarray(x)
    x = x.detach() if hasattr(x, "detach") else x
    if x.__dlpack_device__()[0] != CPU:
        return np.asarray(x.cpu() if hasattr(x, "cpu") else x)  # the one way off a device
    try:
        return np.from_dlpack(x)
    except (BufferError, RuntimeError, TypeError):  # a dtype that DLPack, or NumPy, has not
        return np.asarray(x)


def library_of(x: object) -> str:
    """ "torch", "jax", or "" of whatever else."""
    library = type(x).__module__.partition(".")[0]
    return {"torch": "torch", "jax": "jax", "jaxlib": "jax"}.get(library, "")


def maker(like: Array) -> Callable[[Array], Array] | None:
    """The function from NumPy arrays to arrays of `like`'s library on its device; None where that
    is NumPy itself."""
    library = library_of(like)
    if library == "torch":
        from_dlpack, device = sys.modules["torch"].from_dlpack, like.device
        return lambda x: from_dlpack(x).to(device)
    if library == "jax":
        put, device = sys.modules["jax"].device_put, like.device
        return lambda x: put(x, device)
    return None


def off_host(x: Array) -> bool:
    """Whether a tensor of torch's or JAX's lies on another device than the processor's memory."""
    return bool(library_of(x)) and x.__dlpack_device__()[0] != CPU


def kept(x: Array, dtype: str) -> Array:
    """A tensor's numbers in a tensor of the dtype on its device, which nobody else writes into."""
    library = sys.modules[library_of(x)]
    if library_of(x) == "torch":
        return x.detach().to(getattr(library, dtype), copy=True)
    return library.numpy.asarray(x, dtype)


def dtype_of(x: Array) -> np.dtype[Any]:
    """NumPy's dtype of a tensor's numbers."""
    return np.dtype(str(x.dtype).rpartition(".")[2])


def stacked(rows: Sequence[Array]) -> Array:
    """Arrays of one shape, NumPy's or tensors, along a new first axis."""
    return np.stack(rows) if not library_of(rows[0]) else _functions(rows[0]).stack(rows)


def replaced(x: Array, which: Array, new: Array) -> Array:
    """x [N, ...] with the rows of `new` where `which` [N]; NumPy arrays in place."""
    if not library_of(x):
        x[which] = new[which]
        return x
    wide = which.reshape(-1, *(1,) * (len(x.shape) - 1))
    make = maker(x)
    assert make is not None
    return _functions(x).where(make(wide), new, x)


def is_finite(x: Array) -> bool:
    """Whether a tensor has neither NaN nor infinity."""
    return bool(_functions(x).isfinite(x).all())


def _functions(x: Array) -> Any:
    library = sys.modules[library_of(x)]
    return library if library_of(x) == "torch" else library.numpy


def bits_of(mask: Tree) -> Array:
    """A mask of zeros and ones, int8, in a row; of one in parts, as MultiDiscrete.sample takes it,
    tuples of them too, one after the other."""
    if isinstance(mask, (tuple, list)) and (
        getattr(mask[0], "ndim", isinstance(mask[0], (tuple, list)))
    ):
        return np.concatenate([bits_of(part) for part in mask])
    return (to_numpy(mask) != 0).astype(np.int8).reshape(-1)  # it may have the action's axes
