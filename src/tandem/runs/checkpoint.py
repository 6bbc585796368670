"""Checkpoints: a zip of JSON and safetensors (earlier versions also wrote folders). Files are
written under a temporary name, flushed and renamed: after a kill or on a full disk, the last good
one remains. Reading a checkpoint runs no code. Runs write through `observers.Checkpoints`; agents
through `agents.agent_checkpoint`, and in `train` through `rotation` and `background_writer`;
cluster agents write their own (`cluster/`)."""

from __future__ import annotations

import hashlib
import json
import struct
import zipfile
from collections.abc import Generator, Iterable
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np

from tandem.errors import CheckpointError, nearest
from tandem.replay import array_files
from tandem.runs import atomic_files, checkpoint_dir
from tandem.runs.checkpoint_dir import Groups as Groups
from tandem.types import Array, JSONDict

NO_RUN = "give the folder of a run, as made by `tandem train ALGORITHM ENV --out DIR`."
FORMAT = 1
LIVE = ("learner",)  # groups that hold the replay buffer as views; saved and read in blocks


@dataclass(frozen=True)
class Checkpoint:
    """Contents of a checkpoint file: JSON data, and named arrays in groups, which are read on
    demand."""

    path: Path
    data: JSONDict

    def group(self, name: str) -> dict[str, Array]:
        """Return the arrays of one group; in `LIVE` groups, large arrays are `StoredArray`s. Raises
        CheckpointError if the group is missing or incomplete."""
        try:
            if self.path.is_dir():
                arrays = checkpoint_dir.group(self.path, self.data, name)
            else:
                with zipfile.ZipFile(self.path) as file:
                    entry = file.getinfo(f"{name}.safetensors")
                    with file.open(entry) as opened:
                        while opened.read(array_files.BLOCK):  # zipfile checks the CRC at the end
                            pass
                with self.path.open("rb") as raw:
                    raw.seek(entry.header_offset + 26)
                    begin = entry.header_offset + 30 + sum(struct.unpack("<HH", raw.read(4)))
                arrays = array_files.stored(self.path, begin, entry.file_size)
            most = array_files.BLOCK if name in LIVE else inf
            return array_files.loaded(arrays, most)
        except Exception as error:  # parsers of damaged bytes can raise anything
            raise damaged(self.path, error) from error


def fingerprint(arrays: dict[str, Array]) -> str:
    """Return sixteen hexadecimal digits (SHA-256) that are equal if and only if all arrays and
    their names are equal."""
    digest = hashlib.sha256()
    for name, value in sorted(arrays.items()):
        digest.update(name.encode() + np.ascontiguousarray(value).tobytes())
    return digest.hexdigest()[:16]


def parted(groups: Groups) -> tuple[Groups, Groups]:
    """Split `groups` into those in `LIVE` and the others."""
    live = {name: arrays for name, arrays in groups.items() if name in LIVE}
    return live, {name: arrays for name, arrays in groups.items() if name not in LIVE}


def write(
    path: Path,
    data: JSONDict,
    groups: Groups,
    begun: Iterable[None] | None = None,
) -> None:
    """Write a checkpoint atomically. `begun`: what `write_steps` returned for it, if its `LIVE`
    groups are already written. Raises CheckpointError if the disk rejects the file."""
    for _ in write_steps(path, data, groups) if begun is None else begun:
        pass


def write_steps(path: Path, data: JSONDict, groups: Groups) -> Generator[None, None, None]:
    """Write a checkpoint in two steps: `LIVE` groups before the yield, since their arrays change
    when training continues, and the others after it. Closing the generator in between leaves no
    file."""
    data = {"format": FORMAT, **data}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        live, rest = parted(groups)
        with (
            atomic_files.replacing(path) as raw,
            zipfile.ZipFile(raw, "w", zipfile.ZIP_STORED) as file,
        ):
            _put(file, live)
            yield
            file.writestr(checkpoint_dir.INDEX, json.dumps(data))
            _put(file, rest)
    except OSError as error:
        raise CheckpointError(
            f"could not write {path}: {error}.",
            "a writable folder with room for the checkpoint",
            f"free some space{' (the previous checkpoint is intact)' if path.exists() else ''}, "
            "then resume."
            if any(path.parent.glob(f"*{path.suffix}"))
            else "free some space, or start again in another folder: there is no checkpoint to "
            "resume yet.",
        ) from error


def _put(file: zipfile.ZipFile, groups: Groups) -> None:
    for name, arrays in groups.items():
        entry = zipfile.ZipInfo(f"{name}.safetensors")
        entry.file_size = array_files.size(arrays)  # the header differs above 4 GiB
        with file.open(entry, "w") as opened:
            for piece in array_files.pieces(arrays):
                opened.write(piece)


def read(path: Path) -> Checkpoint:
    """Return a checkpoint with its data. Raises CheckpointError if the file is missing, truncated,
    altered or not a checkpoint."""
    path = Path(path)
    if not path.is_file() and not (path / checkpoint_dir.INDEX).is_file():
        there = sorted(f.name for f in path.parent.glob("*.zip"))
        close = [str(path.parent / name) for name in nearest(path.name, there) or there[:5]]
        raise CheckpointError(
            f"there is no checkpoint {path}.",
            "a .zip written by a run",
            f"did you mean {' or '.join(map(repr, close))}?" if close else NO_RUN,
        )
    try:
        data = _index(path)
    except Exception as error:  # parsers of damaged bytes can raise anything
        raise damaged(path, error) from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        kind = data.get("format") if isinstance(data, dict) else type(data).__name__
        raise CheckpointError(
            f"{path} has the format {kind!r}.", f"format {FORMAT}", _writer_of(data)
        )
    return Checkpoint(path, data)


def _writer_of(data: Any) -> str:
    """Return the advice for a checkpoint of another format: which version can read it."""
    try:
        return f"load it with the version that wrote it: {data['config']['versions']['tandem-rl']}."
    except (KeyError, TypeError):
        return f"if another version of tandem wrote it, use that version; else {NO_RUN}"


def _index(path: Path) -> Any:
    if path.is_dir():
        return json.loads((path / checkpoint_dir.INDEX).read_bytes())
    with zipfile.ZipFile(path) as file:
        return json.loads(file.read(checkpoint_dir.INDEX))


def damaged(path: Path, error: Exception) -> CheckpointError:
    return CheckpointError(
        f"{path} cannot be read as a checkpoint ({type(error).__name__}: {str(error)[:200]}).",
        "a complete zip of JSON and safetensors, as written by tandem",
        instead(path),
    )


def instead(path: Path) -> str:
    """Return advice on replacing the checkpoint `path`, based on the readable files next to it."""
    near = sorted(path.parent.glob(f"*{path.suffix}"), key=lambda other: other.stem != "best")
    sound = {other: data for other in near if other != path and (data := _sound(other))}
    whole = [x for x, data in sound.items() if data.get("whole") or data.get("holds") == "agent"]
    if not sound:
        return f"train again: no other checkpoint in {path.parent} can be read."
    other = next(iter(whole or sound))
    if path.stem != "last":
        return f"use {other}, which can be read{'' if whole else ', for its weights'}."
    if whole:
        return f"cp {quote(str(other))} {quote(str(path))}, which holds a whole run; then resume."
    return (
        "start again from weights, since no file here can be resumed: "
        f"tandem.train(..., start_from={str(other)!r}), where ... are the arguments in config.json."
    )


def _sound(path: Path) -> JSONDict | None:
    """Return the data of a checkpoint that is fully readable, else None."""
    with suppress(Exception):  # parsers of damaged bytes can raise anything
        data: JSONDict = _index(path)
        if path.is_dir():
            for name in data["arrays"]:
                checkpoint_dir.group(path, data, name)
            return data
        with zipfile.ZipFile(path) as file:
            return data if file.testzip() is None else None
    return None


def find(path: Path, which: str = "best") -> Path:
    """Return the checkpoint file for a path: the file itself, or `which` of a run folder. "best"
    falls back to "last" until an evaluation has chosen a best one. Raises CheckpointError, listing
    the available names, if there is no such checkpoint."""
    path = Path(path)
    if not path.is_dir():
        return path
    inside = path / "checkpoints" if (path / "checkpoints").is_dir() else path
    names = sorted(file.stem for file in inside.glob("*.zip"))
    chosen = "last" if which == "best" and which not in names else which
    if chosen not in names:
        close = nearest(which, names) if isinstance(which, str) else []
        raise CheckpointError(
            f"there is no checkpoint {which!r} in {inside}.",
            f"one of {', '.join(names)}" if names else "a folder with checkpoints of a run",
            f"did you mean {' or '.join(map(repr, close))}?"
            if close
            else f"give which={'last' if 'last' in names else names[-1]!r}."
            if names
            else NO_RUN,
        )
    return inside / f"{chosen}.zip"


def folder_of(file: Path) -> Path:
    """Return the run folder of a checkpoint file, or else its parent folder."""
    return file.parents[file.parent.name == "checkpoints"]
