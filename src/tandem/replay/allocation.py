"""Allocation of large arrays, after a check of the available memory or disk space."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from math import inf, prod
from pathlib import Path
from typing import Any

import numpy as np

from tandem.errors import MemoryBudgetError
from tandem.platforms import free_memory, reserve
from tandem.types import AnyArray

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")
# mount, limit file, usage file, key in memory.stat of reclaimable memory: cgroup versions 2 and 1
_CGROUP_FILES = (
    ("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
    (
        "sys/fs/cgroup/memory",
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        "total_inactive_file",
    ),
)


def human(size: int) -> str:
    """Format a number of bytes: '1.5 GiB'."""
    value, power = float(size), 0
    while value >= 1024 and power < len(_UNITS) - 1:
        value, power = value / 1024, power + 1
    return f"{value:.1f} {_UNITS[power]}" if power else f"{size} bytes"


def available_memory(root: Path = Path("/")) -> int | None:
    """Return the bytes of memory available for a new allocation: the machine's free memory, or what
    the limits of containers (cgroups) leave, whichever is less. None if the system does not report
    it. root: the folder that contains proc and sys."""
    limits = [n for n in (free_memory(root), *_cgroup_memory(root)) if n is not None]
    return min(limits, default=None)


def _cgroup_memory(root: Path) -> Iterator[int]:
    """Yield the bytes left of the memory limit of each cgroup that contains this process."""
    for mount, limit_file, use_file, cache_key in _CGROUP_FILES:
        for group in _own_groups(root, root / mount):
            try:
                limit = (group / limit_file).read_text(encoding="utf-8").strip()
                use = int((group / use_file).read_text(encoding="utf-8"))
                lines = (group / "memory.stat").read_text(encoding="utf-8").splitlines()
                stat = dict(line.split() for line in lines)
            except (OSError, ValueError):
                continue
            if limit.isdigit():  # version 2 writes "max" for no limit
                yield max(0, int(limit) - use + int(stat.get(cache_key, 0)))


def _own_groups(root: Path, mount: Path) -> list[Path]:
    """Return this process's cgroup under `mount`, and its ancestors, whose limits apply too."""
    groups = {mount}
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    for _, controllers, path in (line.split(":", 2) for line in lines):
        if controllers in ("", "memory"):
            group = mount / path.lstrip("/")
            groups |= {group, *(p for p in group.parents if mount in p.parents)}
    return sorted(groups)


def require(
    size: int, what: str, files: Sequence[Path] = (), capacity: int = 0, why: object = None
) -> None:
    """Raise MemoryBudgetError, with both sizes, if `size` bytes do not fit: on the disk of `files`,
    if any (existing ones will be replaced, so their space counts as free), otherwise in memory.

    what: the owner of the bytes, for the message. capacity: the capacity of the replay buffer in
    the files. why: the reason that an allocation failed; if given, always raise.
    """
    place = f"the disk of {files[0].parent}" if files else "the memory of this machine"
    available = _available_disk(files) if files else available_memory()
    if why is None and (available is None or size <= available):
        return
    left = f"{human(available or 0)} available{f' ({why})' if why else ''}"
    share = (available or 0) / size
    raise MemoryBudgetError(
        f"{what} needs {human(size)}, but {place} has {left}.",
        f"at most {human(available or 0)}",
        "choose a larger disk with --out (out=), or give a new run --buffer-size "
        f"{int(min(share, 1) * capacity / 3)} or less, which leaves room for checkpoints."
        if files
        else "keep it in files instead of in memory: memmap=True (--memmap; `path` of a buffer); "
        f"or give a new run a smaller capacity (about {share:.0%} of this one fits).",
    )


def _available_disk(files: Sequence[Path]) -> int:
    # space of files that will be replaced; unknown on Windows
    replaced = sum(getattr(f.stat(), "st_blocks", 0) * 512 for f in files if f.exists())
    return shutil.disk_usage(files[0].parent).free + replaced


def size_of(arrays: Iterable[tuple[tuple[int, ...], Any]]) -> int:
    """Return the total bytes of arrays with these shapes and dtypes."""
    return sum(prod(shape) * np.dtype(dtype).itemsize for shape, dtype in arrays)


def allocate(
    columns: Mapping[str, tuple[tuple[int, ...], Any]],
    what: str,
    capacity: int = 0,
    files: Sequence[Path] = (),
) -> dict[str, AnyArray]:
    """Return an array for each shape and dtype, in memory or memory-mapped in `files`, one file per
    array. Arrays in memory are zeros, which use physical memory only once written. Files reserve
    their disk space immediately; an existing file of a matching array is used as it is.

    Raises MemoryBudgetError if they do not fit, see `require`."""
    size = size_of(columns.values())
    require(size, what, files, capacity)
    if not files:
        return {name: np.zeros(shape, dtype) for name, (shape, dtype) in columns.items()}
    try:
        arrays = [_in_file(*x, file) for x, file in zip(columns.values(), files, strict=True)]
    except OSError as error:
        for file in files:
            file.unlink(missing_ok=True)
        require(size, what, files, capacity, error.strerror or error)
        raise
    return dict(zip(columns, arrays, strict=True))


def _in_file(shape: tuple[int, ...], dtype: Any, file: Path) -> AnyArray:
    with suppress(OSError, ValueError):
        old, status = np.lib.format.open_memmap(file, mode="r+"), file.stat()
        is_whole = getattr(status, "st_blocks", inf) * 512 >= status.st_size
        if is_whole and (old.shape, old.dtype) == (shape, np.dtype(dtype)):
            return np.asarray(old)
        del old
    new = np.lib.format.open_memmap(file, mode="w+", dtype=np.dtype(dtype), shape=shape)
    with file.open("r+b") as opened:
        reserve(opened, file.stat().st_size, new.offset)
    # Return a plain array over the map: np.memmap is slower to index, and its results are np.memmap
    # too.
    return np.asarray(new)
