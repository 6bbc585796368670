"""Arrays that processes have in common. Their memory has no name in the system: nothing is left of
it, however they end."""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from collections.abc import Mapping
from math import prod
from typing import Any, NamedTuple

import numpy as np

from tandem.types import Array

ALIGN = 64  # bytes: where arrays begin
Form = tuple[tuple[int, ...], str]  # shape and dtype


class Handle(NamedTuple):
    """How another process finds the memory: by a file descriptor that it inherits."""

    fd: int
    size: int
    forms: dict[str, Form]


class Arrays:
    """Named arrays in one piece of memory. `made` here and `attached` in a process that inherits
    `handle.fd`."""

    def __init__(self, handle: Handle) -> None:
        self.handle, self._views = handle, {}
        memory, at = mmap.mmap(handle.fd, handle.size), 0
        for name, (shape, dtype) in handle.forms.items():
            flat: Array = np.frombuffer(memory, dtype, prod(shape), at)
            self._views[name] = flat.reshape(shape)
            at += _room(shape, dtype)

    @classmethod
    def made(cls, forms: Mapping[str, Form]) -> Arrays:
        """Zeros of these shapes and dtypes."""
        size, fd = max(ALIGN, sum(_room(*form) for form in forms.values())), _descriptor()
        os.ftruncate(fd, size)
        made = cls(Handle(fd, size, dict(forms)))
        weakref.finalize(made, os.close, fd)
        return made

    @classmethod
    def attached(cls, handle: Handle) -> Arrays:
        """Those of another process."""
        try:
            return cls(handle)
        finally:
            os.close(handle.fd)

    def __getitem__(self, name: str) -> Array:
        found: Array = self._views[name]
        return found

    def within(self, place: str) -> dict[str, Array]:
        """Those whose names begin with `place`/, by the rest of it; all of them for ""."""
        start = f"{place}/" if place else ""
        return {n.removeprefix(start): x for n, x in self._views.items() if n.startswith(start)}


def form(x: Any) -> Form:
    """That of an array."""
    return tuple(x.shape), x.dtype.str


def _room(shape: tuple[int, ...], dtype: str) -> int:
    return -(-prod(shape) * np.dtype(dtype).itemsize // ALIGN) * ALIGN


def _descriptor() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("tandem")
    fd, path = tempfile.mkstemp()
    os.unlink(path)  # open, but nowhere to be found
    return fd
