"""State of a vector environment and its wrappers as plain data."""

from __future__ import annotations

import types
from contextlib import closing, suppress
from enum import Enum
from typing import Any

import numpy as np

from tandem.envs.calls import layers
from tandem.envs.ids import import_gymnasium
from tandem.envs.vector import Arrays
from tandem.errors import ResumeError
from tandem.types import Array, JSONDict

_FIXED = (
    type,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.ModuleType,
    Enum,
)


def snapshot(envs: Any, arrays: Arrays) -> list[JSONDict]:
    """Return the attributes of a vector environment and its wrappers, outermost first, as JSON;
    arrays are added to `arrays`.

    Raises ResumeError for an attribute that may change and cannot be stored as plain data."""
    return [
        {
            key: encode(value, f"{depth}.{key}", arrays)
            for key, value in vars(layer).items()
            if not _constant(key, value)
        }
        for depth, layer in enumerate(layers(envs))
    ]


def restore(envs: Any, data: list[JSONDict], arrays: Arrays) -> None:
    """Restore the attributes saved by `snapshot`."""
    for layer, saved in zip(layers(envs), data, strict=True):
        for key, node in saved.items():
            value = decode(node, arrays)
            now = vars(layer).get(key)
            if isinstance(value, np.ndarray) and isinstance(now, np.ndarray) and _alike(value, now):
                now[...] = value  # in place: other attributes may be views of it
            elif isinstance(value, np.random.Generator) and isinstance(now, np.random.Generator):
                now.bit_generator.state = value.bit_generator.state
            else:
                setattr(layer, key, value)


def _alike(a: Array, b: Array) -> bool:
    return bool(a.shape == b.shape and a.dtype == b.dtype and b.flags.writeable)


def inner_environment(envs: Any) -> Any | None:
    """Return one of a vector's environments; a closed copy if they are in other processes; None for
    other types of vectors."""
    inner = getattr(envs, "unwrapped", envs)
    if isinstance(several := getattr(inner, "envs", None), list | tuple):
        return several[0]
    with suppress(Exception), closing(inner.env_fns[0]()) as one:
        return one
    return None


def _constant(key: str, value: object) -> bool:
    """Return true for attributes that stepping does not change: spaces, specs, functions,
    class-level attributes, and the wrapped layer."""
    gym = import_gymnasium()
    fixed = (*_FIXED, gym.Space, gym.envs.registration.EnvSpec)
    return key in ("env", "metadata", "_saved_kwargs") or isinstance(value, fixed)


def encode(value: object, path: str, arrays: Arrays) -> Any:
    """Encode `value` as [kind, JSON]; arrays are added to `arrays` under names that begin with
    `path`.

    Raises ResumeError for values that cannot be stored as plain data."""
    if value is None or isinstance(value, (bool, int, str)):
        return ["plain", value]
    # before the test for float, since np.float64 is a subclass
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biufc":
        arrays[path] = np.array(value, order="C")
        return ["array" if isinstance(value, np.ndarray) else "scalar", path]
    if isinstance(value, float):
        return ["float", value.hex()]
    if isinstance(value, np.random.Generator):
        return ["generator", encode(value.bit_generator.state, path, arrays)]
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        kind = type(value).__name__
        return [kind, [encode(v, f"{path}.{j}", arrays) for j, v in enumerate(value)]]
    if type(value) is dict and all(isinstance(k, str) for k in value):
        return ["dict", {k: encode(v, f"{path}.{k}", arrays) for k, v in value.items()}]
    raise ResumeError(
        f"the vector environment has a {type(value).__name__} in {path.partition('.')[2]!r}, so "
        "it is not exactly resumable.",
        "attributes that are arrays, numbers, strings, containers of these or NumPy generators",
        "train with mode='plain', which replays episodes instead; or return such data from "
        "get_state().",
    )


def decode(node: Any, arrays: Arrays) -> Any:
    """Decode the result of `encode`."""
    kind, value = node
    if kind == "plain":
        return value
    if kind == "float":
        return float.fromhex(value)
    if kind in ("array", "scalar"):
        return arrays[value].copy() if kind == "array" else arrays[value][()]
    if kind == "generator":
        state = decode(value, arrays)
        kinds = {kind.__name__: kind for kind in np.random.BitGenerator.__subclasses__()}
        bits = kinds[state["bit_generator"]]()
        bits.state = state
        return np.random.Generator(bits)
    if kind == "dict":
        return {k: decode(v, arrays) for k, v in value.items()}
    items = [decode(v, arrays) for v in value]
    return tuple(items) if kind == "tuple" else items
