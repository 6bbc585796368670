"""Writing files so that a kill or a full disk leaves what was there before, and says so."""

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
PART = ".part"  # how the names of unfinished files end
_numbers = count()  # several files of one name may be under way


@contextmanager
def writing(out: Path, fix: str = ELSEWHERE) -> Iterator[None]:
    """While a file is written, whose folder is made. RunFolderError where that cannot be; the
    beginning of a new file is removed."""
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
    """What a file that `write_json` wrote holds; {} where it cannot be read, or holds none."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def write_json(path: Path, data: JSONDict, fix: str) -> None:
    """Writes data for people and programs to read, at once or not at all. RunFolderError, with
    this fix, where that cannot be."""
    with writing(path, fix), replacing(path) as file:
        file.write((json.dumps(data, indent=2) + "\n").encode())


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
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    flush_folder(path.parent)


def sweep(folder: Path) -> None:
    """Removes unfinished files, which only a killed process leaves."""
    for left in folder.glob(f".*{PART}"):
        left.unlink(missing_ok=True)
