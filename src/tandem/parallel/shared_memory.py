"""Arrays that processes have in common. On POSIX systems their memory has no name: nothing is left
of it, however they end. Elsewhere it has one, and a guard: the system itself on Windows; else
Python's resource tracker, a process that outlives the one that made it."""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from math import prod
from typing import Any, NamedTuple

import numpy as np

from tandem.platforms import ANY, LINUX, reserve, system
from tandem.types import Array

ALIGN = 64  # bytes: where arrays begin
ShapeDtype = tuple[tuple[int, ...], str]  # shape and dtype


class Handle(NamedTuple):
    """How another process finds the memory: by a file descriptor that it inherits, or by a name."""

    fd: int
    size: int
    shapes: dict[str, ShapeDtype]
    name: str = ""

    @property
    def inherits(self) -> tuple[int, ...]:
        """The file descriptors that it has to inherit."""
        return () if self.name else (self.fd,)


class SharedArrays(Mapping[str, Array]):
    """Named arrays in one piece of memory. `create` makes them here, `attach` finds them in a
    process that inherits `handle.inherits`."""

    def __init__(self, handle: Handle, memory: Any) -> None:
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
        if system() == ANY:
            from multiprocessing.shared_memory import SharedMemory

            named = SharedMemory(create=True, size=size)
            shared = cls(
                Handle(-1, size, dict(shapes), named.name), np.asarray(_Owner(named, size))
            )
            weakref.finalize(shared, named.unlink)
            return shared
        fd = _descriptor(size)
        shared = cls(Handle(fd, size, dict(shapes)), mmap.mmap(fd, size))
        weakref.finalize(shared, os.close, fd)
        return shared

    @classmethod
    def attach(cls, handle: Handle) -> SharedArrays:
        """Those of another process."""
        if handle.name:
            return cls(handle, np.asarray(_Owner(_attached(handle.name), handle.size)))
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


class _Owner:
    """Named memory as an array of bytes, whose parts keep it: it is closed after the last of them,
    as a map is. (SharedMemory refuses to be closed while there are views of its buffer.)"""

    def __init__(self, memory: Any, size: int) -> None:
        self._memory = memory
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory.buf))
        self.__array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }


def _attached(name: str) -> Any:
    """Named memory that another process has made, and removes: this one must not."""
    from multiprocessing import resource_tracker
    from multiprocessing.shared_memory import SharedMemory

    if sys.version_info >= (3, 13):
        return SharedMemory(name, track=False)
    register = resource_tracker.register
    resource_tracker.register = lambda name, rtype: None  # it would be removed with this process
    try:
        return SharedMemory(name)
    finally:
        resource_tracker.register = register


def shape_dtype(x: Any) -> ShapeDtype:
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
