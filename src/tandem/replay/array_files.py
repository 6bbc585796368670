"""Named arrays in the safetensors format, written and read in blocks, so that a replay buffer is
saved and restored without a copy of it in memory."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from math import inf, prod
from pathlib import Path
from typing import IO, Any

import numpy as np

from tandem.types import AnyArray

BLOCK = 2**22  # bytes


class StoredArray:
    """An array in a file, read on use. Its shape and dtype are known. Indexing the first axis with
    an integer or a slice without step returns another stored array. `fill` reads it into an
    existing array, and `np.asarray` into a new one. Copying or pickling gives an array in
    memory."""

    def __init__(self, path: Path, begin: int, shape: tuple[int, ...], dtype: Any) -> None:
        self.path, self.begin, self.shape, self.dtype = path, begin, shape, np.dtype(dtype)
        self.nbytes = prod(shape) * self.dtype.itemsize

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, at: int | slice) -> StoredArray:
        inner = self.shape[1:]
        first, end, _ = at.indices(len(self)) if isinstance(at, slice) else (at, at + 1, 1)
        shape = (max(end - first, 0), *inner) if isinstance(at, slice) else inner
        begin = self.begin + first * prod(inner) * self.dtype.itemsize
        return StoredArray(self.path, begin, shape, self.dtype)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> AnyArray:
        x = np.empty(self.shape, self.dtype)
        fill(x, self)
        return x if dtype is None else x.astype(dtype, copy=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return np.asarray, (np.asarray(self),)


def fill(target: AnyArray, source: Any) -> None:
    """Copy an array or a stored array into another array of the same shape."""
    if not isinstance(source, StoredArray):
        target[...] = source
        return
    if target.shape != source.shape or target.dtype != source.dtype:
        raise ValueError(f"{source.dtype}{source.shape} for {target.dtype}{target.shape}")
    with source.path.open("rb") as file:
        file.seek(source.begin)
        _read(file, target)


def _read(file: IO[bytes], target: AnyArray) -> None:
    if not target.flags.c_contiguous:
        for part in target:
            _read(file, part)
        return
    left = target.reshape(-1).view(np.uint8).data
    while len(left):
        if not (count := file.readinto(left)):  # type: ignore[attr-defined]
            raise EOFError("the file ends within an array")
        left = left[count:]


def size(arrays: Mapping[str, Any]) -> int:
    """Return the size in bytes of a file of these arrays."""
    return len(_header(arrays)) + sum(int(x.nbytes) for x in arrays.values())


def pieces(arrays: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the bytes of a file of these arrays (NumPy, JAX or stored ones) in blocks."""
    yield _header(arrays)
    for name in _in_order(arrays):
        for block in _blocks(arrays[name]):
            yield block.reshape(-1).view(np.uint8).data


def _header(arrays: Mapping[str, Any]) -> bytes:
    rows, end = {}, 0
    for name in _in_order(arrays):
        x, begin = arrays[name], end
        end += x.nbytes
        rows[name] = {
            "dtype": "BOOL" if x.dtype == bool else f"{x.dtype.kind.upper()}{8 * x.dtype.itemsize}",
            "shape": list(x.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(rows, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # arrays start at multiples of eight bytes
    return struct.pack("<Q", len(text)) + text


def _in_order(arrays: Mapping[str, Any]) -> list[str]:
    """Return the names with the widest dtypes first, so that each array is aligned."""
    return sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))


def _blocks(x: Any) -> Iterator[AnyArray]:
    """Yield the elements in order, in contiguous little-endian arrays."""
    if x.nbytes <= BLOCK:
        array = np.asarray(x, order="C")
        yield array.astype(array.dtype.newbyteorder("<"), copy=False)
        return
    rows = BLOCK * len(x) // x.nbytes
    for i in range(0, len(x), max(rows, 1)):
        yield from _blocks(x[i : i + rows] if rows else x[i])


def stored(path: Path, begin: int, length: int) -> dict[str, StoredArray]:
    """Return the arrays of a safetensors file that occupies `length` bytes of `path`, from `begin`.
    Damaged files can raise any exception."""
    with path.open("rb") as file:
        file.seek(begin)
        (count,) = struct.unpack("<Q", file.read(8))
        if count > length - 8:
            raise ValueError(f"a header of {count} bytes in a file of {length}")
        rows = json.loads(file.read(count))
    arrays = {}
    for name, row in rows.items():
        if name != "__metadata__":
            kind, (low, high) = row["dtype"], row["data_offsets"]
            dtype = "?" if kind == "BOOL" else f"<{kind[0].lower()}{int(kind[1:]) // 8}"
            x = StoredArray(path, begin + 8 + count + low, tuple(row["shape"]), dtype)
            if min((low, *x.shape)) < 0 or low + x.nbytes != high or 8 + count + high > length:
                raise ValueError(f"the array {name!r} is not within its file")
            arrays[name] = x
    return arrays


def loaded(arrays: Mapping[str, StoredArray], most: float = inf) -> dict[str, Any]:
    """Read arrays of at most `most` bytes into memory; return larger ones as they are."""
    return {name: x if x.nbytes > most else np.asarray(x) for name, x in arrays.items()}
