"""Arrays of other libraries, torch's and JAX's among them, read as NumPy's and made of them, by
DLPack (https://dmlc.github.io/dlpack): what lies in this memory is shared, not copied. No library
is imported for it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from tandem.types import Array

CPU = 1  # DLPack's number of this memory


def to_numpy(x: Any) -> Array:
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


def maker(like: Any) -> Callable[[Array], Any] | None:
    """The function from NumPy arrays to arrays of `like`'s library on its device; None where that
    is NumPy itself."""
    library = type(like).__module__.partition(".")[0]
    if library == "torch":
        from_dlpack, device = sys.modules["torch"].from_dlpack, like.device
        return lambda x: from_dlpack(x).to(device)
    if library in ("jax", "jaxlib"):
        put, device = sys.modules["jax"].device_put, like.device
        return lambda x: put(x, device)
    return None
