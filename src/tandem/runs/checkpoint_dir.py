"""Checkpoint folders of earlier versions: JSON and one safetensors file per array.
PATH/checkpoint.json names the subfolder with the arrays."""

from __future__ import annotations

import shutil
import zlib
from pathlib import Path

from tandem.replay import array_files
from tandem.types import Array, JSONDict

INDEX = "checkpoint.json"
Groups = dict[str, dict[str, Array]]


def group(path: Path, data: JSONDict, name: str) -> dict[str, array_files.StoredArray]:
    """Return the arrays of one group of a folder. Damaged bytes can raise any exception."""
    part, arrays = path / str(int(data["part"])), {}
    for i, (array, crc) in enumerate(data["arrays"][name].items()):
        file, found = part / f"{name}-{i}.safetensors", 0
        with file.open("rb") as opened:
            while block := opened.read(array_files.BLOCK):
                found = zlib.crc32(block, found)
        if found != crc:
            raise ValueError(f"{file.name} is not what was written")
        arrays[array] = array_files.stored(file, 0, file.stat().st_size)[array]
    return arrays


def remove(path: Path) -> None:
    """Delete a checkpoint file or folder; in a folder, the index first, and only what `write`
    created. Raises OSError on failure."""
    if not path.is_dir():
        path.unlink(missing_ok=True)
        return
    (path / INDEX).unlink(missing_ok=True)
    for part in list(path.iterdir()):
        if part.name.isdecimal() and part.is_dir() and not part.is_symlink():
            shutil.rmtree(part)
    path.rmdir()
