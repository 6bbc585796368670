"""How much memory or disk there is, asked before anything large is allocated, and the allocation
itself."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tandem.errors import MemoryBudgetError

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")
# mount, limit, use, the key in memory.stat of what the kernel can give back: version 2, then
# version 1
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
    """A number of bytes as people read it: '1.5 GiB'."""
    value, power = float(size), 0
    while value >= 1024 and power < len(_UNITS) - 1:
        value, power = value / 1024, power + 1
    return f"{value:.1f} {_UNITS[power]}" if power else f"{size} bytes"


def available_memory(root: Path = Path("/")) -> int | None:
    """Bytes of memory that a new allocation may use: what the machine has free, or the containers'
    (cgroup) limits leave, whichever is less. None where the system does not tell. `root` is the
    folder that holds proc and sys."""
    known = [n for n in (_machine_memory(root), *_cgroup_memory(root)) if n is not None]
    return min(known, default=None)


def _machine_memory(root: Path) -> int | None:
    with contextlib.suppress(OSError):  # not Linux
        for line in (root / "proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    try:  # the whole memory: the best bound that POSIX knows
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def _cgroup_memory(root: Path) -> Iterator[int]:
    """What each limited group around this process has left."""
    for mount, limit_file, use_file, cache_key in _CGROUP_FILES:
        for group in _own_groups(root, root / mount):
            try:
                limit, use = (
                    (group / limit_file).read_text().strip(),
                    int((group / use_file).read_text()),
                )
                stat = dict(
                    line.split() for line in (group / "memory.stat").read_text().splitlines()
                )
            except (OSError, ValueError):
                continue
            if limit.isdigit():  # version 2 writes "max" where there is no limit
                yield max(0, int(limit) - use + int(stat.get(cache_key, 0)))


def _own_groups(root: Path, mount: Path) -> list[Path]:
    """The group of this process under `mount`, and those around it: a limit anywhere above holds
    too."""
    groups = {mount}
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        lines = []
    for _, controllers, path in (line.split(":", 2) for line in lines):
        if controllers in ("", "memory"):
            group = mount / path.lstrip("/")
            groups |= {group, *(p for p in group.parents if mount in p.parents)}
    return sorted(groups)


def require(size: int, what: str, files: list[Path] | None = None) -> None:
    """Refuse to go on where `size` bytes do not fit: on the disk of `files` if there are any (those
    that exist already are replaced, so their space counts as free), otherwise in memory.

    Raises MemoryBudgetError, which names both sizes.
    """
    place = f"the disk of {files[0].parent}" if files else "the memory of this machine"
    available = _available_disk(files) if files else available_memory()
    if available is None or size <= available:
        return
    other = (
        "a folder on a larger disk"
        if files
        else "memmap (a buffer's `path`), to keep it in files instead of in memory"
    )
    raise MemoryBudgetError(
        f"{what} needs {human(size)}, but {place} has {human(available)} available.",
        f"at most {human(available)}",
        f"choose a smaller capacity (about {available / size:.0%} of this one would just fit), or "
        f"{other}.",
    )


def _available_disk(files: list[Path]) -> int:
    held = sum(
        getattr(f.stat(), "st_blocks", 0) * 512 for f in files if f.exists()
    )  # Windows does not tell
    return shutil.disk_usage(files[0].parent).free + held


def allocate(shape: tuple[int, ...], dtype: Any, file: Path | None) -> np.ndarray[Any, Any]:
    """Zeros, which take real memory (or disk) only as they are written; in `file`, a new .npy file,
    if given."""
    if file is None:
        return np.zeros(shape, dtype)
    # A plain array over the map: np.memmap's own class costs time at every index and leaks into
    # what is taken from it.
    return np.asarray(
        np.lib.format.open_memmap(file, mode="w+", dtype=np.dtype(dtype), shape=shape)
    )
