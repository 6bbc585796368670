"""The rows of a run's table: counters, running means over episodes, and means over the updates
since the previous row."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tandem.learning.config import Config
from tandem.learning.events import BatchEnd, EpisodeEnd, Evaluation, EvaluationEnd, Event
from tandem.runs.observers import Every
from tandem.runs.plugin_writers import PluginWriter
from tandem.runs.writers import (
    Cell,
    CsvWriter,
    MlflowWriter,
    TensorBoardWriter,
    WandbWriter,
    Writer,
)
from tandem.types import JSONDict

COLUMNS = (
    "env_steps",
    "updates",
    "episodes",
    "seconds",
    "return_mean",
    "length_mean",
    "eval_mean",
    "eval_std",
    "eval_cut",
    "fingerprint",
)
WINDOW = 100  # number of episodes in return_mean and length_mean


class Averages:
    """Means over the latest episodes, and of update metrics since the previous row."""

    def __init__(self) -> None:
        self._returns: deque[float] = deque(maxlen=WINDOW)
        self._lengths: deque[int] = deque(maxlen=WINDOW)
        self._successes: deque[float] = deque(maxlen=WINDOW)
        self.longest = 0  # steps of the longest episode so far
        self._sums: dict[str, float] = {}
        self._counts: dict[str, int] = {}

    def on_episode_end(self, event: EpisodeEnd) -> None:
        self._returns.append(event.episode.score)
        self._lengths.append(event.episode.length)
        if event.episode.success is not None:
            self._successes.append(event.episode.success)
        self.longest = max(self.longest, event.episode.length)

    def on_batch_end(self, event: BatchEnd) -> None:
        for metrics in event.calls or (event.metrics,):
            for name, value in metrics.items():
                self._sums[name] = self._sums.get(name, 0.0) + value
                self._counts[name] = self._counts.get(name, 0) + 1

    def of_episodes(self) -> dict[str, Cell]:
        """Return the mean return and length, None before the first episode has ended, and the
        success rate if the environment reports success."""
        successes = {"success_rate": float(np.mean(self._successes))} if self._successes else {}
        return {
            "return_mean": float(np.mean(self._returns)) if self._returns else None,
            "length_mean": float(np.mean(self._lengths)) if self._lengths else None,
            **successes,
        }

    def return_mean(self) -> float:
        """Return the mean return of the latest episodes; NaN before the first has ended."""
        return float(np.mean(self._returns)) if self._returns else np.nan

    def of_metrics(self) -> dict[str, Cell]:
        """Return the mean of each metric and reset the sums."""
        means: dict[str, Cell] = {n: x / self._counts[n] for n, x in self._sums.items()}
        self._sums, self._counts = {}, {}
        return means

    def state(self) -> JSONDict:
        lists = {"returns": list(self._returns), "lengths": list(self._lengths)}
        sums = {"sums": dict(self._sums), "counts": dict(self._counts)}
        return {**lists, **sums, "longest": self.longest, "successes": list(self._successes)}

    def load_state(self, state: JSONDict) -> None:
        self._returns.extend(state["returns"])
        self._lengths.extend(state["lengths"])
        self._successes.extend(state.get("successes", []))
        self._sums, self._counts = dict(state["sums"]), dict(state["counts"])
        # missing in older checkpoints
        self.longest = state.get("longest", max(state["lengths"], default=0))


class Table:
    """Observer that passes rows to the writers of a run folder: one per interval, and one after
    each evaluation. `fingerprint` returns that of the current weights."""

    def __init__(
        self,
        conf: Config,
        folder: Path,
        averages: Averages,
        every: Every,
        fingerprint: Callable[[], str],
    ) -> None:
        self.conf, self.folder, self.averages = conf, folder, averages
        self.every, self.fingerprint = every, fingerprint
        self._writers: list[Writer] = []
        self.more: list[Writer] = []  # additional writers
        self.evaluation: Evaluation | None = None  # not in a row yet; may have no episodes

    def open(self, env_steps: int) -> None:
        """Open the writers and discard rows beyond `env_steps`, left by a killed session."""
        options, folder = self.conf.options, self.folder
        self._writers.append(CsvWriter(folder / "progress.csv", COLUMNS))
        if options.tensorboard:
            self._writers.append(TensorBoardWriter(folder / "tensorboard"))
        services = (WandbWriter, options.wandb), (MlflowWriter, options.mlflow)
        for kind, project in services:
            if project:
                self._writers.append(kind(project, folder.name, folder, self.conf.to_json()))
        for named in options.writer:
            self._writers.append(PluginWriter(named, folder, self.conf.to_json()))
        self._writers += self.more
        for writer in self._writers:
            writer.rewind(env_steps)

    def close(self) -> None:
        while self._writers:
            self._writers.pop().close()

    def on_evaluation(self, event: EvaluationEnd) -> None:
        self.evaluation = event.evaluation

    def on_batch_end(self, event: BatchEnd) -> None:
        if self.every(event.env_steps) or self.evaluation is not None:
            self._write(event)

    def on_train_end(self, event: Event) -> None:
        if self.evaluation is not None:
            self._write(event)

    on_train_begin = on_train_end  # after an evaluation of the agent that the run starts from

    def _write(self, event: Event) -> None:
        evaluation, self.evaluation = self.evaluation, None
        evaluation = evaluation if evaluation and evaluation.returns else None
        row: dict[str, Cell] = {
            "env_steps": event.env_steps,
            "updates": event.updates,
            "episodes": event.episodes,
            "seconds": round(event.seconds, 3),
            "fingerprint": self.fingerprint(),
            **self.averages.of_episodes(),
            "eval_mean": None if evaluation is None else evaluation.mean,
            "eval_std": None if evaluation is None else evaluation.std,
            "eval_cut": None if evaluation is None else evaluation.cut,
            **self.averages.of_metrics(),
        }
        if evaluation is not None and evaluation.success is not None:
            row["eval_success_rate"] = evaluation.success
        for writer in self._writers:
            writer.write(row)
