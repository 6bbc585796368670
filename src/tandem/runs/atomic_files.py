"""Writing files so that a kill or a full disk leaves what was there before."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import IO

from tandem.platforms import flush_folder, replace

PART = ".part"  # how the names of unfinished files end
_numbers = count()  # several files of one name may be under way


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes the place of `path` when all of it is written and flushed; after an
    exception `path` is as it was."""
    beside = path.with_name(f".{path.name}.{os.getpid()}-{next(_numbers)}{PART}")
    try:
        with open(beside, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    flush_folder(path.parent)


def sweep(folder: Path) -> None:
    """Removes unfinished files, which only a killed process leaves."""
    for left in folder.glob(f".*{PART}"):
        left.unlink(missing_ok=True)
