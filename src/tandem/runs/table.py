"""The rows of a run: counters, running means, and averages over the updates since the row
before."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tandem.learning.config import Config
from tandem.learning.events import Evaluation
from tandem.runs.writers import CsvWriter, TensorBoardWriter, WandbWriter, Writer
from tandem.types import Episode

COLUMNS = (
    "env_steps",
    "updates",
    "episodes",
    "seconds",
    "return_mean",
    "length_mean",
    "eval_mean",
    "eval_std",
    "fingerprint",
)
WINDOW = 100  # episodes that return_mean and length_mean are of


class Table:
    """Gathers what a row needs, and gives each row to the writers that `open` made."""

    def __init__(self) -> None:
        self._returns: deque[float] = deque(maxlen=WINDOW)
        self._lengths: deque[int] = deque(maxlen=WINDOW)
        self._sums: dict[str, float] = {}
        self._counts: dict[str, int] = {}
        self._writers: list[Writer] = []

    def open(self, conf: Config, folder: Path, env_steps: int) -> None:
        """Writers in the run's folder; rows beyond `env_steps`, of a sitting that was killed, are
        forgotten."""
        self._writers.append(CsvWriter(folder / "progress.csv", COLUMNS))
        if conf.options.tensorboard:
            self._writers.append(TensorBoardWriter(folder / "tensorboard"))
        if conf.options.wandb:
            self._writers.append(
                WandbWriter(conf.options.wandb, folder.name, folder, conf.to_json())
            )
        for writer in self._writers:
            writer.rewind(env_steps)

    def close(self) -> None:
        while self._writers:
            self._writers.pop().close()

    def episode(self, episode: Episode) -> None:
        self._returns.append(episode.score)
        self._lengths.append(episode.length)

    def metrics(self, metrics: Mapping[str, float]) -> None:
        """Of a call of updates; none before learning starts."""
        for name, value in metrics.items():
            self._sums[name] = self._sums.get(name, 0.0) + value
            self._counts[name] = self._counts.get(name, 0) + 1

    def write(
        self, now: Mapping[str, Any], fingerprint: str, evaluation: Evaluation | None
    ) -> None:
        """A row for the counters `now`."""
        row = {**now, "seconds": round(now["seconds"], 3), "fingerprint": fingerprint}
        row["return_mean"] = float(np.mean(self._returns)) if self._returns else None
        row["length_mean"] = float(np.mean(self._lengths)) if self._lengths else None
        row["eval_mean"], row["eval_std"] = (
            (evaluation.mean, evaluation.std) if evaluation else (None, None)
        )
        row |= {name: total / self._counts[name] for name, total in self._sums.items()}
        self._sums, self._counts = {}, {}
        for writer in self._writers:
            writer.write(row)

    def state(self) -> dict[str, Any]:
        lists = {"returns": list(self._returns), "lengths": list(self._lengths)}
        return {**lists, "sums": dict(self._sums), "counts": dict(self._counts)}

    def load_state(self, state: dict[str, Any]) -> None:
        self._returns.extend(state["returns"])
        self._lengths.extend(state["lengths"])
        self._sums, self._counts = dict(state["sums"]), dict(state["counts"])
