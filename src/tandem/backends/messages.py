"""Messages from the process that leads a run to its followers: a verb, JSON data, and a tree of
NumPy arrays, as bytes. Nothing is unpickled."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from tandem.types import AnyArray, Array, Batch, Tree, leaves

ALIGN = 64  # bytes: alignment of arrays in a message


class Message:
    """An outgoing message: its header, and the size of its arrays in bytes."""

    def __init__(self, verb: str, data: object = None, arrays: Tree = ()) -> None:
        self._flat = [np.ascontiguousarray(x) for x in leaves(arrays)]
        self.header = json.dumps([verb, data, _outlined(arrays)]).encode()
        self.size = sum(map(_padded, self._flat))

    def fill(self, payload: AnyArray) -> None:
        """Write the arrays into a buffer, uint8 [size]."""
        at = 0
        for x in self._flat:
            payload[at : at + x.nbytes] = x.reshape(-1).view(np.uint8)
            at += _padded(x)


def read(header: bytes, payload: AnyArray) -> tuple[str, Any, Tree]:
    """Return (verb, data, arrays) of a received message. The arrays are views of its payload."""
    verb, data, outlined = json.loads(header)
    at = 0

    def filled(outline: Any) -> Tree:
        nonlocal at
        if outline is None:
            return None
        if isinstance(outline, list):
            shape, dtype = outline
            size = int(np.prod(shape)) * np.dtype(dtype).itemsize
            x = payload[at : at + size].view(dtype).reshape(shape)
            at += _padded(x)
            return x
        each = [filled(x) for x in outline["each"]]
        if "names" in outline:
            return dict(zip(outline["names"], each, strict=True))
        return Batch(*each) if outline["batch"] else tuple(each)

    return verb, data, filled(outlined)


def _outlined(tree: Tree) -> object:
    if tree is None:
        return None
    if isinstance(tree, dict):
        return {"names": list(tree), "each": [_outlined(x) for x in tree.values()]}
    if isinstance(tree, tuple):
        return {"batch": isinstance(tree, Batch), "each": [_outlined(x) for x in tree]}
    return [list(tree.shape), tree.dtype.str]


def _padded(x: Array) -> int:
    return -(-int(x.nbytes) // ALIGN) * ALIGN
