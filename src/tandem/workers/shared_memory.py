"""Arrays that processes have in common. Their memory has no name: nothing is left of it, however
the processes end."""

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

ALIGN = 64  # bytes: where arrays begin
ShapeDtype = tuple[tuple[int, ...], str]  # shape and dtype


class Handle(NamedTuple):
    """How another process finds the memory: by a file descriptor that it inherits."""

    fd: int
    size: int
    shapes: dict[str, ShapeDtype]

    @property
    def inherits(self) -> tuple[int, ...]:
        """The file descriptors that it has to inherit."""
        return (self.fd,)


class SharedArrays(Mapping[str, Array]):
    """Named arrays in one piece of memory. `create` makes them here, `attach` finds them in a
    process that inherits `handle.inherits`."""

    def __init__(self, handle: Handle, memory: mmap.mmap) -> None:
        """memory: what has the buffer of `handle.size` bytes."""
        self.handle = handle
        self._views: dict[str, Array] = {}
        at = 0
        for name, (shape, dtype) in handle.shapes.items():
            flat: Array = np.frombuffer(memory, dtype, prod(shape), at)
            self._views[name] = flat.reshape(shape)
            at += _padded_size(shape, dtype)

    @classmethod
    def create(cls, shapes: Mapping[str, ShapeDtype]) -> SharedArrays:
        """Zeros of these shapes and dtypes."""
        size = max(ALIGN, sum(_padded_size(*shape_dtype) for shape_dtype in shapes.values()))
        fd = _descriptor(size)
        shared = cls(Handle(fd, size, dict(shapes)), mmap.mmap(fd, size))
        weakref.finalize(shared, os.close, fd)
        return shared

    @classmethod
    def attach(cls, handle: Handle) -> SharedArrays:
        """Those of another process."""
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
        """Those called `prefix`/NAME, by NAME."""
        start = f"{prefix}/"
        return {n.removeprefix(start): x for n, x in self._views.items() if n.startswith(start)}


def shape_dtype(x: Array) -> ShapeDtype:
    """That of an array."""
    return tuple(x.shape), x.dtype.str


def _padded_size(shape: tuple[int, ...], dtype: str) -> int:
    return -(-prod(shape) * np.dtype(dtype).itemsize // ALIGN) * ALIGN


def _descriptor(size: int) -> int:
    if system() == LINUX:
        fd = os.memfd_create("tandem")
        os.ftruncate(fd, size)
        return fd
    fd, path = tempfile.mkstemp()
    os.unlink(path)  # open, but nowhere to be found
    with open(fd, "wb", closefd=False) as file:
        reserve(file, size)
    return fd
