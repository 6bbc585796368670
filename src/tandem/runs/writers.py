"""A run's table, row by row: as CSV, as TensorBoard events, to Weights & Biases, to MLflow.

A row is a dict of columns and always has `env_steps`. The columns that other parts of tandem read
are

    env_steps updates episodes seconds     the counters, as in every event
    return_mean                            mean return of the latest training episodes; empty before
                                           the first
    eval_mean eval_std                     of an evaluation; empty in rows without one
    eval_cut                               how many of its episodes its budget of steps cut
    success_rate eval_success_rate         share of the successful episodes, of the latest training
                                           episodes and of an evaluation; only where the environment
                                           gives info["is_success"]
    fingerprint                            of the weights

and any metric of an algorithm may stand beside them.
"""

from __future__ import annotations

import csv
import io
import math
import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

from tandem import platforms
from tandem.errors import RunFolderError, needs
from tandem.runs.atomic_files import ELSEWHERE, read_json, write_json, writing

Cell = float | str | None
Row = Mapping[str, Cell]

NEW_TABLE = "move that file away: a resumed run starts a new one."


class Writer(Protocol):
    """Takes the rows of a run."""

    def write(self, row: Row) -> None:
        """Adds a row; it must have `env_steps`. None means: not measured in this row."""

    def rewind(self, env_steps: int) -> None:
        """Forgets the rows beyond `env_steps`: the run goes on from a checkpoint taken there."""

    def close(self) -> None:
        """Ends writing; nothing may be written afterwards."""


def read_table(path: Path) -> tuple[list[str], list[list[str]]]:
    """The columns and the rows of a table that CsvWriter wrote, as text. A last line torn by a kill
    is left out.

    Raises RunFolderError where the file cannot be read or is no such table.
    """
    try:
        text = path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise RunFolderError(
            f"cannot read {path}: {error}.", "the table of a run", NEW_TABLE
        ) from error
    lines = list(csv.reader(io.StringIO(text[: text.rfind("\n") + 1], newline="")))
    if not lines:
        return [], []
    columns, *rows = lines
    if "env_steps" not in columns:
        raise RunFolderError(
            f"{path} has no column env_steps, but {', '.join(columns)[:200]}.",
            "the table of a tandem run",
            NEW_TABLE,
        )
    for number, row in enumerate(rows, start=1):
        if len(row) != len(columns):
            raise RunFolderError(
                f"row {number} of {path} has {len(row)} cells.",
                f"{len(columns)}, as in its first line",
                "remove that row.",
            )
    return columns, rows


class CsvWriter:
    """`progress.csv`: each row reaches the operating system before `write` returns, so a kill loses
    none.

    An existing table is continued. `columns` come first, in this order. A row with a column not
    seen before widens the table: it is written anew beside itself and renamed, so nobody has to
    know all metrics of a run before its first update.
    """

    def __init__(self, path: Path, columns: Sequence[str] = ()) -> None:
        self.path = Path(path)
        self._columns: list[str] = []
        self._file: Any = None
        rows: list[list[str]] = []
        if self.path.exists():
            self._columns, rows = read_table(self.path)
        self._rewrite(rows, [*self._columns, *(c for c in columns if c not in self._columns)])

    def write(self, row: Row) -> None:
        new = [name for name in row if name not in self._columns]
        if new:
            self._rewrite(read_table(self.path)[1], [*self._columns, *new])
        data = _line([row.get(name) for name in self._columns])
        with writing(self.path):
            while data:  # a raw write may take only a part
                data = data[self._file.write(data) :]

    def rewind(self, env_steps: int) -> None:
        columns, rows = read_table(self.path)
        if columns:
            at = columns.index("env_steps")
            self._rewrite([row for row in rows if float(row[at]) <= env_steps], columns)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _rewrite(self, rows: list[list[str]], columns: list[str]) -> None:
        """Replaces the file at once by these rows, filled up to `columns`, and opens it for
        more."""
        self.close()
        self._columns = columns
        lines = (
            [columns, *([*row, *[""] * (len(columns) - len(row))] for row in rows)]
            if columns
            else []
        )
        beside = self.path.with_name(self.path.name + ".part")
        with writing(self.path):
            try:
                with open(beside, "wb") as file:
                    file.write(b"".join(map(_line, lines)))
                    file.flush()
                    os.fsync(file.fileno())
                self._file = open(beside, "ab", buffering=0)
                platforms.lock(self._file)  # before anybody else can open it
                os.replace(beside, self.path)
            except OSError:
                self.close()
                raise


class TensorBoardWriter:
    """TensorBoard events: every number of a row becomes a scalar at its `env_steps`; text is left
    out.

    Made of tensorboard's record writer and protocol buffers alone: its `EventFileWriter` opens
    files through TensorFlow wherever that is installed, and this must cost a run on another engine
    nothing. Each sitting writes a file of its own.
    """

    def __init__(self, folder: Path) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._event, self._session = event_pb2.Event, event_pb2.SessionLog
        self._summary = summary_pb2.Summary
        with writing(folder / "events"):
            self._path = folder / _next_event_file(folder)
            self._records = RecordWriter(open(self._path, "wb"))
        self._add(file_version="brain.Event:2")

    def write(self, row: Row) -> None:
        step = int(row["env_steps"] or 0)
        values = [
            self._summary.Value(tag=name, simple_value=x) for name, x in _numbers(row).items()
        ]
        self._add(step=step, summary=self._summary(value=values))

    def rewind(self, env_steps: int) -> None:
        """Tells TensorBoard to forget what earlier sittings wrote beyond `env_steps`."""
        self._add(step=env_steps + 1, session_log=self._session(status=self._session.START))

    def close(self) -> None:
        self._records.close()

    def _add(self, **fields: Any) -> None:
        with writing(self._path):
            self._records.write(self._event(wall_time=time.time(), **fields).SerializeToString())
            self._records.flush()


class WandbWriter:
    """Weights & Biases, for those who ask for it. The run's id there is kept in wandb.json, so that
    resuming goes on with the same one, and no other run does."""

    def __init__(self, project: str, name: str, folder: Path, config: Mapping[str, Any]) -> None:
        fix = "pip install wandb, or do without: wandb='' (--wandb '')."
        with needs("wandb", "to log to Weights & Biases", fix):
            import wandb
        file = folder / "wandb.json"
        run_id = _known_run(file) or (folder.name if (folder / "wandb").is_dir() else "")
        if not run_id:
            run_id = uuid4().hex
            write_json(file, {"run_id": run_id}, ELSEWHERE)
        self._run: Any = wandb.init(
            project=project,
            id=run_id,
            name=name,
            resume="allow",
            dir=str(folder),
            config=dict(config),
        )

    def write(self, row: Row) -> None:
        step = int(row["env_steps"] or 0)
        if step >= self._run.step:
            self._run.log(_numbers(row), step=step)

    def rewind(self, env_steps: int) -> None:
        """Keeps what is there: W&B cannot take steps back, and since resuming is exact, the rows
        beyond `env_steps` will come again with the same numbers. `write` leaves them out until the
        run is past them."""

    def close(self) -> None:
        self._run.finish()


class MlflowWriter:
    """MLflow, for those who ask for it: an experiment of this name, where MLFLOW_TRACKING_URI
    says. The run's id there is kept in mlflow.json, so that resuming goes on with the same one.
    Nothing of MLflow's global state is touched: a program may have a run of its own open."""

    def __init__(self, experiment: str, name: str, folder: Path, config: Mapping[str, Any]) -> None:
        fix = "pip install 'tandem-rl[mlflow]', or do without: mlflow='' (--mlflow '')."
        with needs("mlflow", "to log to MLflow", fix):
            from mlflow import MlflowClient
            from mlflow.entities import Metric, Param
        self._client, self._metric = MlflowClient(), Metric
        file = folder / "mlflow.json"
        self._id = _known_run(file)
        if self._id:
            self._client.update_run(self._id, status="RUNNING")
        else:
            there = self._client.get_experiment_by_name(experiment)
            at = there.experiment_id if there else self._client.create_experiment(experiment)
            self._id = self._client.create_run(at, run_name=name).info.run_id
            write_json(file, {"run_id": self._id}, ELSEWHERE)
            said = {**config, **config["settings"], **config["options"]}
            params = [
                Param(key, str(value)[:500])  # MLflow 2's most
                for key, value in said.items()
                if not isinstance(value, dict) and str(value) != ""
            ]
            for first in range(0, len(params), 100):  # a batch's most
                self._client.log_batch(self._id, params=params[first : first + 100])
        latest = self._client.get_run(self._id).data.metrics.get("env_steps")
        self._latest = -1 if latest is None else int(latest)

    def write(self, row: Row) -> None:
        step, now = int(row["env_steps"] or 0), int(1000 * time.time())
        if step > self._latest:
            self._latest = step
            numbers = {"env_steps": float(step), **_numbers(row)}
            finite = {name: x for name, x in numbers.items() if math.isfinite(x)}
            metrics = [self._metric(name, x, now, step) for name, x in finite.items()]
            self._client.log_batch(self._id, metrics=metrics)

    def rewind(self, env_steps: int) -> None:
        """Keeps what is there, as `WandbWriter` does, and for the same reason."""

    def close(self) -> None:
        self._client.set_terminated(self._id)


def _known_run(file: Path) -> str:
    """The id of the run that an earlier sitting has begun; "" where there is none."""
    return str(read_json(file).get("run_id", ""))


def _numbers(row: Row) -> dict[str, float]:
    return {
        k: float(v)
        for k, v in row.items()
        if v is not None and not isinstance(v, str) and k != "env_steps"
    }


def _line(cells: Sequence[Cell]) -> bytes:
    """A row ends at the only line break in it, so that a torn one is known by the break it
    lacks."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(
        [" ".join(c.splitlines()) if isinstance(c, str) else c for c in cells]
    )
    return text.getvalue().encode()


def _next_event_file(folder: Path) -> str:
    """A name that TensorBoard reads after all the others there: it goes by the alphabet, so the
    second must be a new one."""
    stamps = [
        int(m[1])
        for f in folder.iterdir()
        if (m := re.match(r"events\.out\.tfevents\.(\d+)", f.name))
    ]
    return f"events.out.tfevents.{max([int(time.time()), *(s + 1 for s in stamps)]):010d}.tandem"
