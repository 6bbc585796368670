"""Checkpoints: a zip of JSON and safetensors. Written beside, flushed, renamed: a kill or a full disk leaves the last good one.
Reading one runs no code."""

from __future__ import annotations

import json
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tandem.errors import CheckpointError
from tandem.types import Array

FORMAT = 1
Groups = dict[str, dict[str, Array]]


@dataclass(frozen=True)
class Checkpoint:
    """What a file holds: JSON data, and named arrays in groups, read when asked for."""

    path: Path
    data: dict[str, Any]

    def group(self, name: str) -> dict[str, Array]:
        """The arrays of one group. CheckpointError where it is not there or not whole."""
        from safetensors import SafetensorError
        from safetensors.numpy import load

        try:
            with zipfile.ZipFile(self.path) as file:
                found: dict[str, Array] = load(file.read(f"{name}.safetensors"))
                return found
        except (OSError, zipfile.BadZipFile, KeyError, SafetensorError, EOFError) as error:
            raise damaged(self.path, error) from error


def write(path: Path, data: dict[str, Any], groups: Groups) -> None:
    """Writes a checkpoint at once or not at all. CheckpointError where the disk does not take it."""
    from safetensors.numpy import save

    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(beside, "wb") as raw:
            with zipfile.ZipFile(raw, "w", zipfile.ZIP_STORED) as file:
                file.writestr("checkpoint.json", json.dumps({"format": FORMAT, **data}))
                for name, arrays in groups.items():
                    file.writestr(f"{name}.safetensors", save({k: np.asarray(x, order="C") for k, x in arrays.items()}))
            raw.flush()
            os.fsync(raw.fileno())
        os.replace(beside, path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise CheckpointError(
            f"could not write {path}: {error}.",
            "a folder that can be written, with room for the checkpoint",
            f"free some space{'; the checkpoint before it is whole' if path.exists() else ''}, then resume.",
        ) from error
    _flush_folder(path.parent)


def read(path: Path) -> Checkpoint:
    """A checkpoint's data. CheckpointError for a file that is missing, truncated, altered or something else."""
    path = Path(path)
    if not path.is_file():
        raise CheckpointError(f"there is no checkpoint {path}.", "a .zip that a run wrote", "check the path.")
    try:
        with zipfile.ZipFile(path) as file:
            data = json.loads(file.read("checkpoint.json"))
    except (OSError, zipfile.BadZipFile, KeyError, EOFError, ValueError) as error:
        raise damaged(path, error) from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        found = data.get("format") if isinstance(data, dict) else type(data).__name__
        raise CheckpointError(
            f"{path} has the format {found!r}.", f"format {FORMAT}", "load it with the version of tandem that wrote it."
        )
    return Checkpoint(path, data)


def damaged(path: Path, error: Exception) -> CheckpointError:
    return CheckpointError(
        f"{path} cannot be read as a checkpoint ({type(error).__name__}: {str(error)[:200]}).",
        "a whole zip of JSON and safetensors, as tandem writes them",
        "use another checkpoint of the run: best.zip, last.zip or a numbered one.",
    )


def find(path: Path, which: str = "best") -> Path:
    """The checkpoint file that a path means: itself, or a run folder's `which` (best, else last)."""
    path = Path(path)
    if not path.is_dir():
        return path
    inside = path / "checkpoints" if (path / "checkpoints").is_dir() else path
    for name in dict.fromkeys((which, "last")):
        if (inside / f"{name}.zip").is_file():
            return inside / f"{name}.zip"
    return inside / f"{which}.zip"


def _flush_folder(folder: Path) -> None:
    """So that the rename itself survives a power cut, where the system lets a folder be opened."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
