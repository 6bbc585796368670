"""Arrays shared between processes. Their memory has no name, so nothing is left behind, however the
processes end."""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from math import prod
from typing import NamedTuple

import numpy as np

from tandem.platforms import LINUX, reserve, system
from tandem.types import Array

ALIGN = 64  # bytes: alignment of arrays
ShapeDtype = tuple[tuple[int, ...], str]  # shape and dtype


class Handle(NamedTuple):
    """Reference to shared memory for another process, which inherits a file descriptor."""

    fd: int
    size: int
    shapes: dict[str, ShapeDtype]

    @property
    def inherits(self) -> tuple[int, ...]:
        """File descriptors that the process must inherit."""
        return (self.fd,)


class SharedArrays(Mapping[str, Array]):
    """Named arrays in one block of memory. `create` allocates them, `attach` opens them in a
    process that inherits `handle.inherits`."""

    def __init__(self, handle: Handle, memory: mmap.mmap) -> None:
        """Create the views. memory: buffer of `handle.size` bytes."""
        self.handle = handle
        self._views: dict[str, Array] = {}
        at = 0
        for name, (shape, dtype) in handle.shapes.items():
            flat: Array = np.frombuffer(memory, dtype, prod(shape), at)
            self._views[name] = flat.reshape(shape)
            at += _padded_size(shape, dtype)

    @classmethod
    def create(cls, shapes: Mapping[str, ShapeDtype]) -> SharedArrays:
        """Allocate zeros of these shapes and dtypes."""
        size = max(ALIGN, sum(_padded_size(*shape_dtype) for shape_dtype in shapes.values()))
        fd = _descriptor(size)
        shared = cls(Handle(fd, size, dict(shapes)), mmap.mmap(fd, size))
        weakref.finalize(shared, os.close, fd)
        return shared

    @classmethod
    def attach(cls, handle: Handle) -> SharedArrays:
        """Open the arrays of another process."""
        try:
            return cls(handle, mmap.mmap(handle.fd, handle.size))
        finally:
            os.close(handle.fd)

    def __getitem__(self, name: str) -> Array:
        return self._views[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._views)

    def __len__(self) -> int:
        return len(self._views)

    def under(self, prefix: str) -> dict[str, Array]:
        """Return the arrays named `prefix`/NAME, by NAME."""
        start = f"{prefix}/"
        return {n.removeprefix(start): x for n, x in self._views.items() if n.startswith(start)}


def shape_dtype(x: Array) -> ShapeDtype:
    """Return the shape and dtype of an array."""
    return tuple(x.shape), x.dtype.str


def _padded_size(shape: tuple[int, ...], dtype: str) -> int:
    return -(-prod(shape) * np.dtype(dtype).itemsize // ALIGN) * ALIGN


def _descriptor(size: int) -> int:
    if system() == LINUX:
        fd = os.memfd_create("tandem")
        os.ftruncate(fd, size)
        return fd
    fd, path = tempfile.mkstemp()
    os.unlink(path)  # open, but without a name
    with open(fd, "wb", closefd=False) as file:
        reserve(file, size)
    return fd
