"""Folders of runs: finding one, naming a new one, reading what is in it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np

from tandem import algorithms
from tandem.errors import RunFolderError, nearest
from tandem.platforms import file_name
from tandem.runs.writers import read_table
from tandem.types import JSONDict

FRAMEWORKS = {
    "torch": "PyTorch",
    "tensorflow": "Keras on TensorFlow",
    "jax": "Keras on JAX",
    "keras-torch": "Keras on PyTorch",
}
_made: list[Path] = []  # by `free_folder`


@dataclass(frozen=True)
class Run:
    """What a run's folder says: its settings, and the columns of its table as text."""

    folder: Path
    config: JSONDict
    table: dict[str, list[str]]

    def column(self, name: str) -> Any:
        """A column as float64 [rows], NaN where a cell is empty; all NaN where there is no such
        column. RunFolderError where a cell is no number."""
        cells = self.table.get(name, [""] * len(self.table["env_steps"]))
        try:
            return np.array([float(c) if c else np.nan for c in cells], np.float64)
        except ValueError as error:
            raise RunFolderError(
                f"column {name} of {self.folder / 'progress.csv'} has a cell that is no number: "
                f"{error}.",
                "the table of a run, as tandem wrote it",
                "put that cell right, or leave it empty.",
            ) from error

    @property
    def result(self) -> JSONDict:
        """What its result.json says; {} where it has not come to its end, or has been extended
        since."""
        try:
            result = json.loads((self.folder / "result.json").read_text(encoding="utf-8"))
            complete = result["env_steps"] >= self.config.get("settings", {}).get("steps", 0)
        except (OSError, ValueError, KeyError, TypeError):
            return {}
        return dict(result) if complete else {}


@contextmanager
def writing(out: Path) -> Iterator[None]:
    """While a file is written, whose folder is made. RunFolderError where that cannot be."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise RunFolderError(
            f"cannot write {out}: {error}.",
            "a folder with write permission and free space",
            "choose another with --out.",
        ) from error


def runs_in(folder: Path) -> list[Path]:
    """The runs that a folder stands for: itself; or those that it and the folders of seeds in it
    hold."""
    folder = Path(folder)
    if (folder / "config.json").is_file() or not folder.is_dir():
        return [folder]
    held = [f.parent for at in ("*", "*/*") for f in folder.glob(f"{at}/config.json")]
    return sorted(run for run in held if run.parent not in held) or [folder]


def read_run(folder: Path) -> Run:
    """The run in a folder. RunFolderError, with the names of the nearest runs, where there is
    none."""
    folder = Path(folder)
    if not folder.is_dir():
        raise RunFolderError(
            f"there is no folder {folder}.",
            "the folder of a run",
            suggest(folder.parent, folder.name),
        )
    for name in ("config.json", "progress.csv"):
        if not (folder / name).is_file():
            raise RunFolderError(
                f"{folder} is not a run: it has no {name}.",
                "a folder that `tandem train` made",
                suggest(folder, ""),
            )
    columns, rows = read_table(folder / "progress.csv")
    if not rows:
        raise RunFolderError(
            f"the run {folder} has no progress yet.",
            "at least one row in its progress.csv",
            "train it for a while (resume=, --resume)."
            if (folder / "checkpoints" / "last.zip").is_file()
            else "remove it, and train anew: it ended before it began.",
        )
    return Run(
        folder,
        _config(folder / "config.json"),
        {c: [row[i] for row in rows] for i, c in enumerate(columns)},
    )


def _config(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunFolderError(
            f"cannot read {path}: {error}.",
            "the settings of a run as JSON",
            "resume the run, which writes it anew.",
        ) from error
    if not isinstance(config, dict):
        raise RunFolderError(
            f"{path} holds a {type(config).__name__}.",
            "the settings of a run: an object with names and values",
            "resume the run, which writes it anew.",
        )
    return config


def suggest(where: Path, name: str) -> str:
    """Which runs in `where` might have been meant."""
    command = (
        [f.name for f in where.iterdir() if (f / "config.json").is_file()] if where.is_dir() else []
    )
    close = (nearest(name, command) or sorted(command)[:5]) if name else sorted(command)[:5]
    if not close:
        return "check the path, or train one with `tandem train ALGORITHM ENV --out DIR`."
    return f"did you mean {' or '.join(str(where / c) for c in close)}?"


def describe(run: Run, keys: Sequence[str]) -> str:
    """Those of a run's settings for people: "PPO, CartPole-v1, Keras on JAX, seed 0"."""
    words: dict[str, Callable[[str], str]] = {
        "algorithm": algorithms.title,
        "framework": lambda value: FRAMEWORKS.get(value, value),
        "seed": lambda value: f"seed {value}",
    }
    known = [key for key in keys if run.config.get(key) is not None]
    return ", ".join(words.get(key, str)(str(run.config[key])) for key in known)


def run_folder(folder: Path) -> Path:
    """The folder, if it is a run's. RunFolderError with the nearest ones otherwise."""
    if (folder / "config.json").is_file() and (folder / "checkpoints").is_dir():
        return folder
    exists = folder.is_dir()
    fix = suggest(folder, "") if exists else suggest(folder.parent, folder.name)
    if (folder / "sweep.json").is_file():
        fix = f"it is a sweep: tandem sweep --resume {quote(str(folder))} goes on with it."
    raise RunFolderError(
        f"the folder {folder} {'is not a run' if exists else 'does not exist'}.",
        "a folder that `tandem train` made",
        fix,
    )


def default_folder(algorithm: str, env_name: str, seed: int | str) -> Path:
    """runs/ppo-CartPole-v1-s0-20250131-120000, or the next free name like it."""
    name, algorithm = file_name(env_name), algorithm.rpartition(":")[2]
    return free_folder(Path("runs") / f"{algorithm}-{name}-s{seed}")


def free_folder(what: Path) -> Path:
    """The path with the time after it, or the next free name like it. The folder is made: another
    command of the same second takes another name. See `drop_unused`."""
    base = what.with_name(f"{what.name}-{datetime.now():%Y%m%d-%H%M%S}")
    made = [] if base.parent.exists() else [base.parent]
    folder, n = base, 2
    while True:
        try:
            folder.mkdir(parents=True)
        except OSError as error:
            # a link that leads nowhere is in the way too, of any name
            if not isinstance(error, FileExistsError) or not folder.parent.is_dir():
                return folder  # whoever writes there says why it cannot be
            folder, n = base.with_name(f"{base.name}-{n}"), n + 1
        else:
            _made.extend([folder, *made])
            return folder


def drop_unused() -> None:
    """Removes the folders that `free_folder` made for commands which were refused, and wrote
    nothing."""
    while _made:
        with suppress(OSError):  # something is in it
            _made.pop(0).rmdir()


def new_folder(folder: Path) -> Path:
    """The folder, if a run may begin in it: it is empty, or not there yet. RunFolderError
    otherwise."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        of_run = (folder / "checkpoints" / "last.zip").is_file()
        raise RunFolderError(
            f"{folder} exists and is not empty.",
            "a new folder",
            f"choose another, or go on with it: --resume {quote(str(folder))}"
            if of_run
            else "choose another.",
        )
    return folder
