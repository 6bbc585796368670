"""What goes to another process is there what it would be in this one: as it was when it was given,
and free to be changed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np


def copied(value: Any) -> Any:
    """With copies of all arrays and tensors in dicts, lists and tuples: environments may write the
    next step into them."""
    return _mapped(_copy, value)


def writable(value: Any) -> Any:
    """With copies of those arrays in dicts, lists and tuples that cannot be written, as Ray's that
    lie in its store."""
    return _mapped(
        lambda x: x.copy() if isinstance(x, np.ndarray) and not x.flags.writeable else x, value
    )


def _mapped(function: Callable[[Any], Any], value: Any) -> Any:
    if type(value) in (dict, OrderedDict):
        return type(value)((k, _mapped(function, v)) for k, v in value.items())
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_mapped(function, v) for v in value))
    if type(value) in (list, tuple):
        return type(value)(_mapped(function, v) for v in value)
    return function(value)


def _copy(x: Any) -> Any:
    if isinstance(x, np.ndarray):
        return x.copy()
    return (
        x.clone()
        if callable(getattr(x, "detach", None)) and callable(getattr(x, "clone", None))
        else x
    )
