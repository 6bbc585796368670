"""Atomic file writes: after a kill or a full disk the previous file is intact, and errors are
raised."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import IO

from tandem.errors import RunFolderError, brief
from tandem.platforms import flush_folder
from tandem.types import JSONDict

ELSEWHERE = "free some space, or choose another with --out."
PART = ".part"  # suffix of unfinished files
_numbers = count()  # two files of the same name can be open at once


@contextmanager
def writing(out: Path, fix: str = ELSEWHERE) -> Iterator[None]:
    """Create the folder of `out`, and raise RunFolderError if writing fails in this context. A
    partially written new file is removed."""
    is_new = not out.exists()
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        yield
    except RunFolderError:
        raise
    except OSError as error:
        with suppress(OSError):
            out.unlink() if is_new else None
        raise RunFolderError(
            f"cannot write {out}: {error.strerror or brief(error)}.",
            "a folder with write permission and free space",
            fix,
        ) from error


def read_json(path: Path) -> JSONDict:
    """Return the contents of a file written by `write_json`; {} if it is unreadable or not a
    dict."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def write_json(path: Path, data: JSONDict, fix: str) -> None:
    """Write human-readable JSON atomically. Raises RunFolderError with this `fix` on failure."""
    with writing(path, fix), replacing(path) as file:
        file.write((json.dumps(data, indent=2) + "\n").encode())


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Yield a file that replaces `path` once it is fully written and flushed; after an exception
    `path` is unchanged."""
    beside = path.with_name(f".{path.name}.{os.getpid()}-{next(_numbers)}{PART}")
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
    """Remove unfinished files, which only a killed process leaves behind."""
    for left in folder.glob(f".*{PART}"):
        left.unlink(missing_ok=True)
