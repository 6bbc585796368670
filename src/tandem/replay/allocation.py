"""How much memory or disk there is, asked before anything large is allocated, and the allocation
itself."""

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
# mount, limit, use, the key in memory.stat of what the kernel can free: of cgroup version 2, and 1
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
    """Returns a number of bytes in words: '1.5 GiB'."""
    value, power = float(size), 0
    while value >= 1024 and power < len(_UNITS) - 1:
        value, power = value / 1024, power + 1
    return f"{value:.1f} {_UNITS[power]}" if power else f"{size} bytes"


def available_memory(root: Path = Path("/")) -> int | None:
    """Returns the bytes of memory that a new allocation may use: what the machine has free, or the
    limits of containers (cgroups) leave, whichever is less. None where the system does not tell.
    root: the folder that holds proc and sys."""
    limits = [n for n in (free_memory(root), *_cgroup_memory(root)) if n is not None]
    return min(limits, default=None)


def _cgroup_memory(root: Path) -> Iterator[int]:
    """Bytes left of the limit of each group around this process."""
    for mount, limit_file, use_file, cache_key in _CGROUP_FILES:
        for group in _own_groups(root, root / mount):
            try:
                limit = (group / limit_file).read_text(encoding="utf-8").strip()
                use = int((group / use_file).read_text(encoding="utf-8"))
                lines = (group / "memory.stat").read_text(encoding="utf-8").splitlines()
                stat = dict(line.split() for line in lines)
            except (OSError, ValueError):
                continue
            if limit.isdigit():  # version 2 writes "max" where there is no limit
                yield max(0, int(limit) - use + int(stat.get(cache_key, 0)))


def _own_groups(root: Path, mount: Path) -> list[Path]:
    """The group of this process under `mount`, and those around it, whose limits hold too."""
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
    """Raises MemoryBudgetError, with both sizes, where `size` bytes do not fit: on the disk of
    `files` if there are any (those that exist already are replaced, so their space counts as free),
    otherwise in memory; or where `why` says that they do not. what: what needs them, for the
    message. capacity: of the replay buffer that the files are of.
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
    # of files that will be replaced; Windows does not tell
    replaced = sum(getattr(f.stat(), "st_blocks", 0) * 512 for f in files if f.exists())
    return shutil.disk_usage(files[0].parent).free + replaced


def size_of(arrays: Iterable[tuple[tuple[int, ...], Any]]) -> int:
    """Returns the bytes of arrays of these shapes and dtypes."""
    return sum(prod(shape) * np.dtype(dtype).itemsize for shape, dtype in arrays)


def allocate(
    columns: Mapping[str, tuple[tuple[int, ...], Any]],
    what: str,
    capacity: int = 0,
    files: Sequence[Path] = (),
) -> dict[str, AnyArray]:
    """Returns an array for each shape and dtype; in `files`, if there are any, one for each. In
    memory they are zeros, which take real memory only as they are written. Files have their place
    on the disk at once; one of the same array that is there already is used as it is.

    Raises MemoryBudgetError where they do not fit, see `require`."""
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
    # A plain array over the map: np.memmap's own class costs time at every index and leaks into
    # what is taken from it.
    return np.asarray(new)
