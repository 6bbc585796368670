"""Observers: the tasks of a run besides learning, at the events of its loop. They evaluate, save
checkpoints and add copies to a league. (`table` writes rows.)

An observer's methods have the names of a `Callback`'s and receive the event. Events that one yields
are passed to the callbacks and to all observers before it continues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic

import numpy as np

from tandem.envs.league import League
from tandem.learning.collect.evaluation import EvaluationStopped
from tandem.learning.events import (
    BatchEnd,
    CheckpointSaved,
    Counters,
    Evaluation,
    EvaluationEnd,
    Event,
    TrainBegin,
    TrainEnd,
)
from tandem.networks.plan import Weights
from tandem.runs import checkpoint
from tandem.types import JSONDict

WRITING = 0.05  # maximum share of a run's time for checkpoints

RoleWeights = dict[str, Weights]


class Every:
    """Interval of `steps` environment steps: true on the first call at or beyond each multiple."""

    def __init__(self, steps: int) -> None:
        self.steps = self.due = steps

    def __call__(self, env_steps: int) -> bool:
        if env_steps < self.due:
            return False
        self.due = (env_steps // self.steps + 1) * self.steps
        return True


class LeagueCopies:
    """Observer that adds a copy of the learner to the league of its opponents at each interval."""

    def __init__(self, league: League, every: Every, weights: Callable[[], RoleWeights]) -> None:
        self.league, self.every, self.weights = league, every, weights

    def on_batch_end(self, event: BatchEnd) -> None:
        if self.every(event.env_steps):
            self.league.add(self.weights())


class Evaluations:
    """Observer that evaluates at each interval and at the end of a complete run, `at_begin` also
    before the first step, and tracks the best mean. Without evaluations the best agent is the one
    with the best mean return of recent training episodes at these steps.

    evaluate: scores the current agent; returns no episodes if it cannot be evaluated; raises
    EvaluationStopped if the run must end first, and the evaluation is then still due. weights:
    returns the acting weights; set if no checkpoints are written, and the best are then kept in
    memory. trained: the mean return of recent training episodes, NaN before the first. save: saves
    a checkpoint of the best agent if no EvaluationEnd reports it.
    """

    def __init__(
        self,
        every: Every,
        steps: int,
        evaluate: Callable[[], Evaluation],
        weights: Callable[[], RoleWeights] | None,
        trained: Callable[[], float],
        save: Callable[[Counters], Iterator[Event]],
        at_begin: bool = False,
    ) -> None:
        self.every, self.steps, self.evaluate, self.weights = every, steps, evaluate, weights
        self.trained, self.save, self.at_begin = trained, save, at_begin
        self.best = -np.inf
        self.last: Evaluation | None = None
        self.history: list[tuple[int, float, float]] = []  # this session: steps, mean, std
        self.evaluated_at = -1  # env_steps at the latest evaluation
        self.best_weights: RoleWeights = {} if weights is None else weights()

    def on_train_begin(self, event: TrainBegin) -> Iterator[Event]:
        if self.at_begin and event.env_steps == 0 > self.evaluated_at:
            yield from self._evaluated(event)

    def on_batch_end(self, event: BatchEnd) -> Iterator[Event]:
        due = self.every.due
        if self.every(event.env_steps):
            try:
                yield from self._evaluated(event)
            except EvaluationStopped:
                self.every.due = due
                raise

    def on_train_end(self, event: TrainEnd) -> Iterator[Event]:
        if event.env_steps >= self.steps and event.env_steps != self.evaluated_at:
            yield from self._evaluated(event)

    def _evaluated(self, event: Event) -> Iterator[Event]:
        evaluation, self.evaluated_at = self.evaluate(), event.env_steps
        mean = evaluation.mean if evaluation.returns else self.trained()
        is_best, tie = mean >= self.best, mean == self.best
        self.best = mean if is_best else self.best
        if is_best and self.weights is not None:
            self.best_weights = self.weights()
        if evaluation.returns:
            self.last = evaluation
            self.history.append((event.env_steps, evaluation.mean, evaluation.std))
            yield EvaluationEnd(**event.counters(), evaluation=evaluation, best=is_best, tie=tie)
        elif is_best:
            yield from self.save(event.counters())


class Checkpoints:
    """Observer that saves to `folder`: "last" when a run starts and ends and every `seconds` in
    between; "best" and the `keep` newest numbered ones at evaluations; and permanent ones, named
    kept-…, every `every.steps` steps. It writes in the training thread.

    state: returns the contents of a checkpoint, of a whole run (True) or of an agent alone.
    save_at_begin: for a run that has no checkpoint yet.
    """

    def __init__(
        self,
        folder: Path,
        state: Callable[[bool], tuple[JSONDict, checkpoint.Groups]],
        *,
        seconds: float,
        keep: int,
        every: Every,
        save_at_begin: bool,
    ) -> None:
        self.folder, self.state, self.every = folder, state, every
        self.seconds, self.keep, self.save_at_begin = seconds, keep, save_at_begin
        self.pause, self.saved_at = seconds, monotonic()
        self.numbered: list[str] = []

    def on_train_begin(self, event: TrainBegin) -> Iterator[Event]:
        if self.save_at_begin:
            yield from self.save(event.counters(), "last", *self._permanent(event))

    def on_evaluation(self, event: EvaluationEnd) -> Iterator[Event]:
        if event.best:
            yield from self.save(event.counters(), "best")
        if not self.keep:
            return
        name = f"step-{event.env_steps:09d}"
        yield from self.save(event.counters(), name)
        self.numbered.append(name)
        for old in self.numbered[: -self.keep]:
            (self.folder / f"{old}.zip").unlink(missing_ok=True)
        self.numbered = self.numbered[-self.keep :]

    def on_batch_end(self, event: BatchEnd) -> Iterator[Event]:
        if self.every.steps and self.every(event.env_steps):
            yield from self.save(event.counters(), *self._permanent(event))
        if monotonic() - self.saved_at > self.pause:
            yield from self.save(event.counters(), "last")

    def on_train_end(self, event: TrainEnd) -> Iterator[Event]:
        yield from self.save(event.counters(), "last", *self._permanent(event))

    def save(self, counters: Counters, *names: str) -> Iterator[CheckpointSaved]:
        """Write checkpoints with these names; only "last" holds the whole run."""
        for name in names:
            began = monotonic()
            data, groups = self.state(name == "last")
            path = self.folder / f"{name}.zip"
            checkpoint.write(path, data, groups)
            if name == "last":
                self.saved_at = monotonic()
                self.pause = max(self.seconds, (self.saved_at - began) / WRITING)
            yield CheckpointSaved(**counters, path=path)

    def _permanent(self, event: Event) -> list[str]:
        """Return the name of a permanent checkpoint, if `every` has steps."""
        return [f"kept-{event.env_steps:09d}"] if self.every.steps else []
