"""A run as JSON lines, for programs: the live progress and the rows of progress.csv."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from math import isfinite
from typing import Any, TextIO

from tandem.learning.events import CheckpointSaved, EvaluationEnd, Event, TrainEnd
from tandem.runs.progress_line import Progress
from tandem.runs.writers import Row


class JsonLog(Progress):
    """Callback that writes one JSON object per line for each event; its `event` field is the type
    (docs/howto/logging.md lists all fields). Unknown and non-finite values are null.

    As a writer in `Table.more` it also writes the rows of progress.csv. stream: defaults to stdout.
    quiet: only write the `line` of a `result`.
    """

    def __init__(
        self, steps: int, quiet: bool = False, *, stream: TextIO | None = None, **more: Any
    ) -> None:
        super().__init__(steps, quiet, stream=stream or sys.stdout, **more)
        self._terminal = False

    def line(self, event: str, fields: Mapping[str, Any]) -> None:
        """Write one line."""
        if not self.quiet or event == "result":
            said = json.dumps(_plain({"event": event, **fields}), allow_nan=False)
            print(said, file=self._stream, flush=True)

    # Writer methods

    def write(self, row: Row) -> None:
        self.line("row", row)

    def rewind(self, env_steps: int) -> None:
        """Keep the lines already written: readers detect the first repeated `row`."""

    # Callback methods

    def _evaluation(self, event: EvaluationEnd) -> None:
        e, self._told = event.evaluation, event.env_steps
        fields = {"mean": e.mean, "std": e.std, "episodes": len(e.returns), "cut": e.cut}
        fields |= {} if e.success is None else {"success": e.success}
        self.line("evaluation", {**event.counters(), **fields, "best": event.best})

    def _checkpoint(self, event: CheckpointSaved) -> None:
        self.line("checkpoint", {**event.counters(), "path": str(event.path)})

    def _end(self, event: TrainEnd) -> None:
        self.line("end", {**event.counters(), "reason": event.reason, "shares": self._shares})

    def _show(
        self, event: Event, speed: float | None, learning: float | None, remain: float | None
    ) -> None:
        scores = sum(self._scores) / len(self._scores) if self._scores else None
        fields = {
            "stop_at": self.stop_at,
            "steps_per_second": speed,
            "updates_per_second": learning,
            "return_mean": scores,
            "loss": self._loss,
            "seconds_left": remain,
        }
        self.line("progress", {**event.counters(), **fields})


def _plain(value: Any) -> Any:
    """Return JSON data with None for numbers that are not finite."""
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float):  # includes NumPy's float64
        return float(value) if isfinite(value) else None
    return value
