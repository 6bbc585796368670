"""A checkpoint as a folder: JSON beside one safetensors file for each array, written and read side
by side.

PATH/checkpoint.json names the subfolder that holds the arrays, and is renamed last: until then the
state before is whole.
"""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from tandem.platforms import flush_folder
from tandem.replay import array_files
from tandem.runs import atomic_files
from tandem.types import Array, JSONDict

INDEX = "checkpoint.json"
Groups = dict[str, dict[str, Array]]
LIVE = ("learner",)  # groups with the replay memory: views of it, saved and read in blocks


def parted(groups: Groups) -> tuple[Groups, Groups]:
    """The groups of `LIVE`, and the others."""
    live = {name: arrays for name, arrays in groups.items() if name in LIVE}
    return live, {name: arrays for name, arrays in groups.items() if name not in LIVE}


def steps(path: Path, data: JSONDict, groups: Groups) -> Iterator[None]:
    """Writes it at once or not at all, in the two steps of `checkpoint.steps`. OSError where the
    disk does not take it."""
    path.mkdir(parents=True, exist_ok=True)
    before = _parts(path)
    part = path / str(1 + max((int(p.name) for p in before), default=-1))
    part.mkdir()
    try:
        live, rest = parted(groups)
        arrays = _put(part, live)
        yield
        arrays |= _put(part, rest)
        flush_folder(part)
        with atomic_files.replacing(path / INDEX) as file:
            file.write(json.dumps(data | {"part": int(part.name), "arrays": arrays}).encode())
    except BaseException:
        # else the index was renamed, and what failed was to flush that
        if not _is_current(path, part):
            shutil.rmtree(part, ignore_errors=True)
            with suppress(OSError):  # an older state is in it
                path.rmdir()
        raise
    for old in before:
        shutil.rmtree(old, ignore_errors=True)


def group(path: Path, data: JSONDict, name: str) -> dict[str, array_files.StoredArray]:
    """The arrays of one group of what `steps` wrote. Raises whatever damaged bytes come to."""
    sums = data["arrays"][name]
    part = path / str(int(data["part"]))
    arrays = _each(
        _get, [(part / _file(name, i), array, crc) for i, (array, crc) in enumerate(sums.items())]
    )
    return dict(zip(sums, arrays, strict=True))


def remove(path: Path) -> None:
    """Deletes a checkpoint of either kind; of a folder the index first, and nothing that `write`
    did not make. OSError where that cannot be."""
    if not path.is_dir():
        path.unlink(missing_ok=True)
        return
    (path / INDEX).unlink(missing_ok=True)
    for part in _parts(path):
        shutil.rmtree(part)
    path.rmdir()


def _is_current(path: Path, part: Path) -> bool:
    index = path / INDEX
    return index.is_file() and str(json.loads(index.read_bytes())["part"]) == part.name


def _parts(path: Path) -> list[Path]:
    return [p for p in path.iterdir() if p.name.isdecimal() and p.is_dir() and not p.is_symlink()]


def _file(group: str, i: int) -> str:
    return f"{group}-{i}.safetensors"


def _each(function: Callable[[Any], Any], jobs: Iterable[Any]) -> list[Any]:
    """In threads: disks, and the copying of large arrays, do without the interpreter's lock."""
    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
        return list(pool.map(function, jobs))


def _put(part: Path, groups: Groups) -> dict[str, dict[str, int]]:
    """Writes a file for each array; returns their sums."""
    jobs = [
        (part / _file(group, i), {name: x})
        for group, xs in groups.items()
        for i, (name, x) in enumerate(xs.items())
    ]
    sums = iter(_each(_put_one, jobs))
    return {group: {name: next(sums) for name in xs} for group, xs in groups.items()}


def _put_one(job: tuple[Path, dict[str, Array]]) -> int:
    path, arrays = job
    crc = 0
    with path.open("wb") as file:
        for piece in array_files.pieces(arrays):
            file.write(piece)
            crc = zlib.crc32(piece, crc)
        file.flush()
        os.fsync(file.fileno())
    return crc


def _get(job: tuple[Path, str, int]) -> array_files.StoredArray:
    path, name, crc = job
    found = 0
    with path.open("rb") as file:
        while block := file.read(array_files.BLOCK):
            found = zlib.crc32(block, found)
    if found != crc:
        raise ValueError(f"{path.name} is not what was written")
    return array_files.stored(path, 0, path.stat().st_size)[name]
