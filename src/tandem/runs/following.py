"""Watching a run from outside: the state of its folder while another process writes it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tandem import platforms
from tandem.errors import RunFolderError, TandemError
from tandem.runs import checkpoint, config_file
from tandem.runs.atomic_files import read_json
from tandem.runs.folder import Run, result_of, run_folder, runs_in
from tandem.runs.writers import read_table
from tandem.types import JSONDict

SETTLE = 30.0  # seconds without a change until parallel runs are considered finished
PATIENCE = 300.0  # seconds without a change until a run is considered killed
STATES = BEGINS, TRAINS, SCORES, COMPLETE, STOPPED = (
    "begins",
    "trains",
    "scores",
    "complete",
    "stopped",
)


class Look(NamedTuple):
    """A run at one moment. `run.table` may have no rows yet. `result` holds result.json if it
    covers the steps of the run, else {}. `silent` is the seconds since the last change."""

    run: Run
    state: str  # one of STATES
    result: JSONDict
    silent: float

    @property
    def env_steps(self) -> int:
        """The known number of environment steps so far."""
        cells = self.run.table["env_steps"] or ["0"]
        return max(int(float(cells[-1])), int(self.result.get("env_steps", 0)))

    @property
    def steps(self) -> int:
        """The total length of the run in steps."""
        return int(self.run.config.get("settings", {}).get("steps", 0))

    @property
    def is_over(self) -> bool:
        """True if no process is working on the run."""
        return self.state in (COMPLETE, STOPPED)

    def latest(self, column: str) -> float:
        """Return the last value of a column, NaN if there is none."""
        values = self.run.column(column)
        known = values[np.isfinite(values)]
        return float(known[-1]) if len(known) else float("nan")

    def best(self) -> float:
        """Return the highest evaluation mean so far, NaN if there is none."""
        values = self.run.column("eval_mean")
        known = values[np.isfinite(values)]
        return float(known.max()) if len(known) else float("nan")

    def speed(self) -> float:
        """Return the steps per second over the last rows, 0 if unknown."""
        steps, seconds = self.run.column("env_steps")[-6:], self.run.column("seconds")[-6:]
        span = float(seconds[-1] - seconds[0]) if len(steps) > 1 else 0.0
        return float(steps[-1] - steps[0]) / span if span > 0 else 0.0


def look(folder: Path) -> Look:
    """Return the current state of a run. Raises RunFolderError if the folder has none or its table
    is damaged."""
    folder, table = Path(folder), {"env_steps": list[str]()}
    if not (folder / "config.json").is_file():
        run_folder(folder)
    file = folder / "progress.csv"
    if file.is_file():
        columns, rows = read_table(file)
        table |= {c: [row[i] for row in rows] for i, c in enumerate(columns)}
    silent = max(0.0, time.time() - _newest(folder))
    now = Look(Run.of(folder, config_file.read(folder), table), BEGINS, {}, silent)
    if platforms.is_held(file) or (not platforms.HOLDS and silent < PATIENCE):
        return now._replace(state=TRAINS if table["env_steps"] else BEGINS)
    if result := result_of(folder, now.env_steps):  # not an earlier session's, with fewer steps
        whole = result["env_steps"] >= now.steps
        return now._replace(state=COMPLETE if whole else STOPPED, result=result)
    if _saved_steps(folder) >= now.steps > 0 and silent < PATIENCE:
        return now._replace(state=SCORES)
    return now._replace(state=STOPPED if table["env_steps"] or silent > SETTLE else BEGINS)


def look_at_all(folder: Path) -> list[Look]:
    """Return the run in a folder, or all its runs (seeds, trials); an empty list if they are only
    starting. Raises RunFolderError if there are none and none are announced."""
    looks, found = list[Look](), runs_in(folder)
    if found == [Path(folder)] and _announced(folder):
        return looks
    for each in found:
        try:
            looks.append(look(each))
        except RunFolderError:
            if each == Path(folder) or each.is_dir():  # otherwise a sweep has removed the run
                raise
    return looks


def all_over(folder: Path, looks: Sequence[Look]) -> bool:
    """Return True if nothing more is expected in a folder: with several runs, one may start when
    another ends."""
    if not looks:
        return time.time() - max(file.stat().st_mtime for file in _announced(folder)) > PATIENCE
    if not all(each.is_over for each in looks):
        return False
    alone = looks[0].run.folder == Path(folder)
    done = sum(each.state == COMPLETE for each in looks)
    return alone or done == _listed(folder) or min(each.silent for each in looks) > SETTLE


def _announced(folder: Path) -> list[Path]:
    """Return the files that announce runs in a folder."""
    files = [Path(folder) / name for name in ("seeds.json", "sweep.json")]
    return [file for file in files if file.is_file()]


def _listed(folder: Path) -> int:
    """Return the number of runs that the command in this folder makes; 0 if unknown."""
    return len(read_json(Path(folder) / "seeds.json").get("seeds", ()))


def _newest(folder: Path) -> float:
    files = [folder / name for name in ("config.json", "progress.csv", "result.json")]
    files += [folder / "checkpoints" / name for name in ("last.zip", "best.zip")]
    times = []
    for file in files:
        with suppress(OSError):  # missing, or being replaced
            times.append(file.stat().st_mtime)
    return max(times, default=0.0)


def _saved_steps(folder: Path) -> int:
    """Return the steps of the last checkpoint, which a session writes at its end; -1 if there is
    none."""
    try:
        data = checkpoint.read(folder / "checkpoints" / "last.zip").data
        return int(data["collector"]["env_steps"])
    except (TandemError, KeyError, TypeError, ValueError):
        return -1
