"""Writing files so that a kill or a full disk leaves what was there before."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError:  # Windows
    HOLDS = False
else:
    HOLDS = True  # whether `hold` does anything here
PART = ".part"  # how the names of unfinished files end


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes the place of `path` when all of it is written and flushed; after an
    exception `path` is as it was."""
    beside = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}{PART}")
    try:
        with open(beside, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    flush_folder(path.parent)


def sweep(folder: Path) -> None:
    """Removes unfinished files, which only a killed process leaves."""
    for left in folder.glob(f".*{PART}"):
        left.unlink(missing_ok=True)


def flush_folder(folder: Path) -> None:
    """So that the rename itself survives a power cut, where the system lets a folder be opened."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def hold(file: IO[bytes]) -> None:
    """Lets others know by `is_held` that a process has this file open, until it closes it or dies.
    Nobody else may have it open yet. Nothing where the system or the disk cannot do that."""
    if HOLDS:
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_held(path: Path) -> bool:
    """Whether a process holds this file."""
    if not HOLDS:
        return False
    try:
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # there is no such file, or no locks on this disk
        return False
    return False
