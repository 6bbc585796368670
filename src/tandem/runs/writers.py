"""Writers for the rows of a run's table: CSV, TensorBoard, Weights & Biases and MLflow.

A row is a dict of columns and always has `env_steps`. Other parts of tandem read these columns:

    env_steps updates episodes seconds     the counters, as in every event
    return_mean                            mean return of the latest training episodes; empty before
                                           the first
    eval_mean eval_std                     of an evaluation; empty in rows without one
    eval_cut                               number of its episodes cut off by the step budget
    success_rate eval_success_rate         share of successful episodes, of the latest training
                                           episodes and of an evaluation; only if the environment
                                           reports info["is_success"]
    fingerprint                            hash of the weights

Any metric of an algorithm can be an additional column.
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
    """Protocol of a writer of a run's rows."""

    def write(self, row: Row) -> None:
        """Add a row; it must have `env_steps`. None: not measured in this row."""

    def rewind(self, env_steps: int) -> None:
        """Discard the rows beyond `env_steps`: the run resumes from a checkpoint taken there."""

    def close(self) -> None:
        """End writing; nothing may be written afterwards."""


def read_table(path: Path) -> tuple[list[str], list[list[str]]]:
    """Return the columns and rows, as text, of a table written by CsvWriter, without a last line
    torn by a kill.

    Raises RunFolderError if the file cannot be read or is not such a table.
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
    """Writer of `progress.csv`. Each row reaches the operating system before `write` returns, so a
    kill loses none.

    An existing table is continued. `columns` come first, in this order. A row with a new column
    widens the table: it is rewritten to a temporary file and renamed, so the metrics of a run need
    not be known before its first update.
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
            while data:  # a raw write may be partial
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
        """Replace the file atomically with these rows, padded to `columns`, and open it for
        appending."""
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
                platforms.lock(self._file)  # before another process can open it
                os.replace(beside, self.path)
            except OSError:
                self.close()
                raise


class TensorBoardWriter:
    """Writer of TensorBoard events: every number in a row becomes a scalar at its `env_steps`; text
    is left out.

    It uses only tensorboard's record writer and protocol buffers: `EventFileWriter` opens files
    through TensorFlow if that is installed, a cost that runs on other backends must not pay. Each
    session writes its own file.
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
        """Make TensorBoard discard what earlier sessions wrote beyond `env_steps`."""
        self._add(step=env_steps + 1, session_log=self._session(status=self._session.START))

    def close(self) -> None:
        self._records.close()

    def _add(self, **fields: Any) -> None:
        with writing(self._path):
            self._records.write(self._event(wall_time=time.time(), **fields).SerializeToString())
            self._records.flush()


class WandbWriter:
    """Optional writer to Weights & Biases. The id of the W&B run is kept in wandb.json, so that
    resuming continues the same run and no other run does."""

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
        """Keep existing rows: W&B cannot take steps back, and since resuming is exact, the rows
        beyond `env_steps` recur with the same numbers. `write` skips them until the run is past
        them."""

    def close(self) -> None:
        self._run.finish()


class MlflowWriter:
    """Optional writer to MLflow: an experiment of this name at MLFLOW_TRACKING_URI. The id of the
    MLflow run is kept in mlflow.json, so that resuming continues the same run. MLflow's global
    state is untouched, so the program may have its own run open."""

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
                Param(key, str(value)[:500])  # maximum length in MLflow 2
                for key, value in said.items()
                if not isinstance(value, dict) and str(value) != ""
            ]
            for first in range(0, len(params), 100):  # maximum batch size
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
        """Keep existing rows, as `WandbWriter` does, for the same reason."""

    def close(self) -> None:
        self._client.set_terminated(self._id)


def _known_run(file: Path) -> str:
    """Return the id of the service's run that an earlier session started, or "" if there is
    none."""
    return str(read_json(file).get("run_id", ""))


def _numbers(row: Row) -> dict[str, float]:
    return {
        k: float(v)
        for k, v in row.items()
        if v is not None and not isinstance(v, str) and k != "env_steps"
    }


def _line(cells: Sequence[Cell]) -> bytes:
    """Return a row as CSV that contains a single line break, at its end, so that a torn row is
    recognizable."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(
        [" ".join(c.splitlines()) if isinstance(c, str) else c for c in cells]
    )
    return text.getvalue().encode()


def _next_event_file(folder: Path) -> str:
    """Return a file name that TensorBoard reads after all existing ones. It reads them
    alphabetically, so the second in the name must be new."""
    stamps = [
        int(m[1])
        for f in folder.iterdir()
        if (m := re.match(r"events\.out\.tfevents\.(\d+)", f.name))
    ]
    return f"events.out.tfevents.{max([int(time.time()), *(s + 1 for s in stamps)]):010d}.tandem"
