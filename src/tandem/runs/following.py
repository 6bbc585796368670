"""Following a run from outside: what its folder says while another process writes it."""

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

SETTLE = 30.0  # seconds without a change, after which nothing more is expected of runs side by side
PATIENCE = 300.0  # seconds without a change, after which a run is taken to have been killed
STATES = BEGINS, TRAINS, SCORES, COMPLETE, STOPPED = (
    "begins",
    "trains",
    "scores",
    "complete",
    "stopped",
)


class Look(NamedTuple):
    """A run at one moment. `run.table` may have no rows yet, `result` is what result.json says of
    the steps that the run has, {} without one, `silent` the seconds since its newest change."""

    run: Run
    state: str  # one of those above
    result: JSONDict
    silent: float

    @property
    def env_steps(self) -> int:
        """How many steps it has, as far as is known."""
        cells = self.run.table["env_steps"] or ["0"]
        return max(int(float(cells[-1])), int(self.result.get("env_steps", 0)))

    @property
    def steps(self) -> int:
        """The run's length."""
        return int(self.run.config.get("settings", {}).get("steps", 0))

    @property
    def is_over(self) -> bool:
        """Whether nobody is at work on it."""
        return self.state in (COMPLETE, STOPPED)

    def latest(self, column: str) -> float:
        """The last value of a column, NaN where there is none."""
        values = self.run.column(column)
        known = values[np.isfinite(values)]
        return float(known[-1]) if len(known) else float("nan")

    def best(self) -> float:
        """The highest mean of an evaluation so far, NaN where there is none."""
        values = self.run.column("eval_mean")
        known = values[np.isfinite(values)]
        return float(known.max()) if len(known) else float("nan")

    def speed(self) -> float:
        """Steps a second over the last rows, 0 where that is not known."""
        steps, seconds = self.run.column("env_steps")[-6:], self.run.column("seconds")[-6:]
        span = float(seconds[-1] - seconds[0]) if len(steps) > 1 else 0.0
        return float(steps[-1] - steps[0]) / span if span > 0 else 0.0


def look(folder: Path) -> Look:
    """A run as it is now. RunFolderError where the folder has none, or its table is damaged."""
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
    if result := result_of(folder, now.env_steps):  # not of an earlier sitting, with fewer steps
        whole = result["env_steps"] >= now.steps
        return now._replace(state=COMPLETE if whole else STOPPED, result=result)
    if _saved_steps(folder) >= now.steps > 0 and silent < PATIENCE:
        return now._replace(state=SCORES)
    return now._replace(state=STOPPED if table["env_steps"] or silent > SETTLE else BEGINS)


def look_at_all(folder: Path) -> list[Look]:
    """The run in a folder, or all runs that it has: seeds, trials; of those that begin only now,
    none. RunFolderError where there is none, and none is to come."""
    looks, found = list[Look](), runs_in(folder)
    if found == [Path(folder)] and _announced(folder):
        return looks
    for each in found:
        try:
            looks.append(look(each))
        except RunFolderError:
            if each == Path(folder) or each.is_dir():  # a sweep removes runs
                raise
    return looks


def all_over(folder: Path, looks: Sequence[Look]) -> bool:
    """Whether nothing more is to be expected in a folder: of several runs, one may begin when
    another ends."""
    if not looks:
        return time.time() - max(file.stat().st_mtime for file in _announced(folder)) > PATIENCE
    if not all(each.is_over for each in looks):
        return False
    alone = looks[0].run.folder == Path(folder)
    done = sum(each.state == COMPLETE for each in looks)
    return alone or done == _listed(folder) or min(each.silent for each in looks) > SETTLE


def _announced(folder: Path) -> list[Path]:
    """What says that there are to be runs in a folder."""
    files = [Path(folder) / name for name in ("seeds.json", "sweep.json")]
    return [file for file in files if file.is_file()]


def _listed(folder: Path) -> int:
    """How many runs the command that makes them is to make; 0 where nobody says."""
    return len(read_json(Path(folder) / "seeds.json").get("seeds", ()))


def _newest(folder: Path) -> float:
    files = [folder / name for name in ("config.json", "progress.csv", "result.json")]
    files += [folder / "checkpoints" / name for name in ("last.zip", "best.zip")]
    times = []
    for file in files:
        with suppress(OSError):  # not there yet, or being replaced
            times.append(file.stat().st_mtime)
    return max(times, default=0.0)


def _saved_steps(folder: Path) -> int:
    """The steps of the last checkpoint, which a sitting ends with; -1 where there is none."""
    try:
        data = checkpoint.read(folder / "checkpoints" / "last.zip").data
        return int(data["collector"]["env_steps"])
    except (TandemError, KeyError, TypeError, ValueError):
        return -1
