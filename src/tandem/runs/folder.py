"""Run folders: finding them, naming new ones, reading their contents."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import IO, Any
from weakref import WeakValueDictionary, finalize

import numpy as np

from tandem import algorithms
from tandem.errors import ResumeError, RunFolderError, UnknownNameError, nearest, needs
from tandem.platforms import lock
from tandem.runs.atomic_files import read_json, writing
from tandem.runs.new_folders import LOCK
from tandem.runs.writers import read_table
from tandem.settings import Schedule, as_path, shell_path
from tandem.types import JSONDict

FRAMEWORKS = {
    "torch": "PyTorch",
    "tensorflow": "Keras on TensorFlow",
    "jax": "Keras on JAX",
    "keras-torch": "Keras on PyTorch",
}


class Run:
    """A run folder. `config` holds config.json, `table` the columns of progress.csv as text.

    Raises RunFolderError, suggesting the nearest runs, if the folder has no run or no row yet.
    """

    def __init__(self, folder: str | Path) -> None:
        folder = Path(folder)
        table = _table(folder)
        self._fill(folder, expect_json(folder / "config.json"), table)

    def _fill(self, folder: Path, config: JSONDict, table: dict[str, list[str]]) -> None:
        self.folder, self.config, self.table = folder, config, table

    @classmethod
    def of(cls, folder: Path, config: JSONDict, table: dict[str, list[str]]) -> Run:
        """Return the run with these contents, without reading them again."""
        run = cls.__new__(cls)
        run._fill(folder, config, table)
        return run

    def __repr__(self) -> str:
        """Return for example "Run(runs/a: ppo CartPole-v1, seed 0, 100,352 steps)"."""
        name, env, seed = (self.config.get(key) for key in ("algorithm", "env", "seed"))
        steps = int(self.column("env_steps")[-1])
        return f"Run({self.folder}: {name} {env}, seed {seed}, {steps:,} steps)"

    @property
    def settings(self) -> JSONDict:
        """The algorithm's settings and the run's options by name."""
        return {**self.config.get("settings", {}), **self.config.get("options", {})}

    def rows(self) -> dict[str, Any]:
        """Return the columns of progress.csv as arrays [rows]: float64 with NaN for empty cells;
        `fingerprint` as text."""
        texts = ("fingerprint",)
        return {
            name: np.array(cells) if name in texts else self.column(name)
            for name, cells in self.table.items()
        }

    def frame(self) -> Any:
        """Return `rows()` as a pandas.DataFrame, preceded by the columns folder, algorithm, env,
        framework and seed. Raises EngineError without pandas."""
        with needs("pandas", "for a data frame", "pip install pandas, or use Run.rows()."):
            pandas = import_module("pandas")
        run = {name: self.config.get(name) for name in ("algorithm", "env", "framework", "seed")}
        return pandas.DataFrame({"folder": str(self.folder), **run, **self.rows()})

    @property
    def evaluations(self) -> tuple[tuple[int, float, float], ...]:
        """The evaluations so far: (environment steps, mean return, standard deviation)."""
        names = ("env_steps", "eval_mean", "eval_std")
        rows = zip(*map(self.column, names), strict=True)
        return tuple((int(n), float(x), float(y)) for n, x, y in rows if np.isfinite(x))

    def agent(self, which: str = "best", **given: Any) -> Any:
        """Return the agent of the best checkpoint, of "last", or of a numbered one. `given`:
        arguments of `tandem.load`, for example network= for a custom network."""
        from tandem.runs.loading import load  # it imports this module

        return load(self.folder, which=which, **given)

    def column(self, name: str) -> Any:
        """Return a column as float64 [rows], NaN for empty cells; all NaN if there is no such
        column. Raises RunFolderError for a cell that is not a number."""
        cells = self.table.get(name, [""] * len(self.table["env_steps"]))
        try:
            return np.array([float(c) if c else np.nan for c in cells], np.float64)
        except ValueError as error:
            raise RunFolderError(
                f"column {name} of {self.folder / 'progress.csv'} has a cell that is not a "
                f"number: {error}.",
                "the table that tandem wrote",
                "correct that cell, or empty it.",
            ) from error

    @property
    def result(self) -> JSONDict:
        """The contents of result.json; {} if the run is unfinished or has been extended since."""
        return result_of(self.folder, self.config.get("settings", {}).get("steps", 0))


def result_of(folder: Path, steps: int) -> JSONDict:
    """Return the contents of result.json if it covers at least `steps` steps, else {}."""
    result = read_json(folder / "result.json")
    made = result.get("env_steps")
    return result if isinstance(made, int) and made >= steps else {}


def runs_in(folder: Path) -> list[Path]:
    """Return the runs of a folder: the folder itself, or the runs in it and in its folders of
    seeds."""
    folder = Path(folder)
    if (folder / "config.json").is_file() or not folder.is_dir():
        return [folder]
    held = [f.parent for at in ("*", "*/*") for f in folder.glob(f"{at}/config.json")]
    return sorted(run for run in held if run.parent not in held) or [folder]


def find_runs(folder: str | Path = "runs", **wanted: Any) -> list[Run]:
    """Return the runs below a folder, oldest first, whose config.json has these values: of its
    entries, such as algorithm="ppo" or seed=1, or of settings and options, such as
    learning_rate="3e-4:0". Runs without a row yet and the trials of sweeps are left out. Raises
    UnknownNameError for a name that no run has."""
    folder = as_path("folder", folder)
    if not folder.is_dir():
        raise RunFolderError(
            f"there is no folder {folder}.",
            "a folder with runs",
            suggest(folder.parent, folder.name),
        )
    tables = {x: _columns(x) for x in runs_in(folder) if (x / "progress.csv").is_file()}
    runs = [
        Run.of(x, expect_json(x / "config.json"), table) for x, table in tables.items() if table
    ]
    runs.sort(key=lambda run: (run.folder / "config.json").stat().st_mtime)
    said = {id(run): {**run.settings, **run.config} for run in runs}
    known = {name for each in said.values() for name in each}
    for name in wanted if runs else ():
        if name not in known:
            raise UnknownNameError("entry of config.json", name, sorted(known))
    return [
        run for run in runs if all(_are_one(said[id(run)].get(n), x) for n, x in wanted.items())
    ]


def _are_one(said: Any, wanted: Any) -> bool:
    """Return True if `said`, from config.json, equals `wanted`; config.json has schedules in one
    spelling and tuples as lists."""
    if isinstance(said, str):
        with suppress(ValueError):
            wanted = str(Schedule.parse(wanted))
    return str(said) == str([*wanted] if isinstance(wanted, tuple) else wanted)


def _columns(folder: Path) -> dict[str, list[str]]:
    """Return the cells of a run's table by column; {} if it has no row yet."""
    columns, rows = read_table(folder / "progress.csv")
    return {c: [row[i] for row in rows] for i, c in enumerate(columns)} if rows else {}


def _table(folder: Path) -> dict[str, list[str]]:
    """Return the columns of a run's table. Raises RunFolderError if there is none."""
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
                "a folder made by `tandem train`",
                suggest(folder, ""),
            )
    if not (table := _columns(folder)):
        raise RunFolderError(
            f"the run {folder} has no progress yet.",
            "at least one row in its progress.csv",
            "train it for a while (resume=, --resume)."
            if (folder / "checkpoints" / "last.zip").is_file()
            else "remove it, and train again: it ended before its first checkpoint.",
        )
    return table


def expect_json(path: Path) -> dict[str, Any]:
    """Return the contents of a run's JSON file. Raises RunFolderError if it cannot be read."""
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunFolderError(
            f"cannot read {path}: {error}.",
            "JSON, as written by the run",
            "resume the run, which rewrites it.",
        ) from error
    if not isinstance(config, dict):
        raise RunFolderError(
            f"{path} holds a {type(config).__name__}.",
            "names and values, as written by the run",
            "resume the run, which rewrites it.",
        )
    return config


def suggest(where: Path, name: str) -> str:
    """Return advice that names similar runs in `where`."""
    command = (
        [f.name for f in where.iterdir() if (f / "config.json").is_file()] if where.is_dir() else []
    )
    close = (nearest(name, command) or sorted(command)[:5]) if name else sorted(command)[:5]
    if not close:
        return "check the path, or train one with `tandem train ALGORITHM ENV --out DIR`."
    return f"did you mean {' or '.join(str(where / c) for c in close)}?"


def describe(run: Run, keys: Sequence[str]) -> str:
    """Return these settings of a run as readable text: "PPO, CartPole-v1, Keras on JAX, seed 0"."""
    words: dict[str, Callable[[str], str]] = {
        "algorithm": algorithms.title,
        "framework": lambda value: FRAMEWORKS.get(value, value),
        "seed": lambda value: f"seed {value}",
    }
    known = [key for key in keys if run.config.get(key) is not None]
    return ", ".join(words.get(key, str)(str(run.config[key])) for key in known)


def run_folder(folder: Path) -> Path:
    """Return the run folder for a run folder, its checkpoints folder or its last.zip. Raises
    RunFolderError, suggesting similar runs, otherwise."""
    for run in (folder, folder.parent, folder.parent.parent):
        held = run / "checkpoints"
        if (run / "config.json").is_file() and held.is_dir():
            if folder in (run, held, held / "last.zip"):
                return run
            if folder.is_file():
                raise RunFolderError(
                    f"{folder} holds an agent, not a whole run.",
                    "the folder of a run, or its last.zip",
                    f"give {shell_path(run)}.",
                )
    exists = folder.exists()
    fix = suggest(folder, "") if exists else suggest(folder.parent, folder.name)
    if (folder / "sweep.json").is_file():
        fix = f"it is a sweep: resume it with tandem sweep --resume {shell_path(folder)}."
    raise RunFolderError(
        f"the folder {folder} {'is not a run' if exists else 'does not exist'}.",
        "a folder made by `tandem train`",
        fix,
    )


class FolderLock:
    """Exclusive lock of a folder, held until no reference to it remains or the process ends."""

    shared: WeakValueDictionary[Path, FolderLock] = WeakValueDictionary()

    def __init__(self, file: IO[bytes]) -> None:
        self.release = finalize(self, file.close)


def locked(folder: Path, what: str, shared: bool = True) -> FolderLock:
    """Lock a folder in which `what` (such as "the run") is running and return the lock, which all
    callers in this process with `shared` share. Raises ResumeError, naming the holder, if another
    process has it."""
    path = (folder / LOCK).absolute()
    if shared and (ours := FolderLock.shared.get(path)) is not None:
        return ours
    with writing(folder / LOCK):
        file = path.open("a+b", buffering=0)
    file.seek(0)
    if not lock(file):
        holder = f" ({file.read().decode()})"
        file.close()
        raise ResumeError(
            f"{what} in {folder} is already running in another process{holder}.",
            "one process at a time",
            "wait for it, or stop it (Ctrl-C there); tandem watch --live "
            f"{shell_path(folder)} shows it.",
        )
    with suppress(OSError):  # a full disk: the lock holds anyway
        file.truncate()
        file.write(f"process {os.getpid()} on {platform.node()}".encode())
    ours = FolderLock(file)
    if shared:
        FolderLock.shared[path] = ours
    return ours
