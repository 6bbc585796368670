"""Folders that earlier versions wrote as checkpoints: JSON beside one safetensors file for each
array. PATH/checkpoint.json names the subfolder that holds the arrays."""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tandem.replay import array_files
from tandem.types import Array, JSONDict

INDEX = "checkpoint.json"
Groups = dict[str, dict[str, Array]]


def group(path: Path, data: JSONDict, name: str) -> dict[str, array_files.StoredArray]:
    """The arrays of one group of a folder. Raises whatever damaged bytes come to."""
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


def _parts(path: Path) -> list[Path]:
    return [p for p in path.iterdir() if p.name.isdecimal() and p.is_dir() and not p.is_symlink()]


def _file(group: str, i: int) -> str:
    return f"{group}-{i}.safetensors"


def _each(function: Callable[[Any], Any], jobs: Iterable[Any]) -> list[Any]:
    """In threads: disks, and the copying of large arrays, do without the interpreter's lock."""
    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
        return list(pool.map(function, jobs))


def _get(job: tuple[Path, str, int]) -> array_files.StoredArray:
    path, name, crc = job
    found = 0
    with path.open("rb") as file:
        while block := file.read(array_files.BLOCK):
            found = zlib.crc32(block, found)
    if found != crc:
        raise ValueError(f"{path.name} is not what was written")
    return array_files.stored(path, 0, path.stat().st_size)[name]
