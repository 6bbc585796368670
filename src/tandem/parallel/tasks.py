"""Calls of functions in processes, several at a time; one whose process is lost is made again."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from math import inf
from typing import Any, NamedTuple

from tandem.errors import WorkerError
from tandem.parallel.process import SLICE, Process, WorkerLost, end
from tandem.parallel.worker_group import START


class Task(NamedTuple):
    """A call that can be made in another process: function(*arguments)."""

    name: str  # in messages
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


class Caller:
    """In a worker's process: makes calls."""

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Returns function(*arguments)."""
        return function(*arguments)


class Tasks:
    """Makes calls in at most `processes` processes at a time, each of which starts from nothing.

    again: how often in all a call is made again whose process died or took more than `patience`
    seconds; a warning names it. fresh: a process makes one call only. WorkerError for what was lost
    once too often, or raised; then, and whatever else ends it, all processes end.
    """

    def __init__(
        self, processes: int, again: int = 3, patience: float = inf, fresh: bool = False
    ) -> None:
        self.processes, self.again, self.patience, self.fresh = processes, again, patience, fresh
        self.lost = 0  # so far
        self._running: dict[Process, tuple[int, float]] = {}  # which call, and since when

    def run(
        self, tasks: Sequence[Task], done: Callable[[int, Any], None] = lambda i, result: None
    ) -> list[Any]:
        """Returns what the calls came to, in their order. done: called with the number and the
        result of each when it is there."""
        results: list[Any] = [None] * len(tasks)
        waiting, idle = list(range(len(tasks))), list[Process]()
        try:
            while waiting or self._running:
                while waiting and len(self._running) < self.processes:
                    process = idle.pop() if idle else self._started()
                    task = tasks[waiting[0]]
                    self._running[process] = waiting.pop(0), time.monotonic()
                    process.ask("call", task.function, *task.arguments)
                for process in self._answering():
                    i, since = self._running.pop(process)
                    try:
                        results[i] = process.answer(self.patience, since)
                    except WorkerLost as lost:
                        self._note(tasks[i].name, lost)
                        waiting.insert(0, i)
                        continue
                    if self.fresh:
                        end([process])
                    else:
                        idle.append(process)
                    done(i, results[i])
            return results
        finally:
            for process in self._running:
                process.terminate()
            end([*self._running, *idle])
            self._running.clear()

    def _started(self) -> Process:
        process = Process((), Caller)
        process.answer(START)
        return process

    def _answering(self) -> list[Process]:
        """Returns the processes that have an answer, are no more, or have had their time."""
        running = list(self._running)
        ready = running[0].ready(running, SLICE)
        now = time.monotonic()
        return [
            process
            for i, process in enumerate(running)
            if i in ready or now - self._running[process][1] > self.patience
        ]

    def _note(self, name: str, lost: WorkerLost) -> None:
        """Says that a call is made again. WorkerError where it raised, or enough were lost."""
        if lost.trace or self.lost >= self.again:
            raise WorkerError(
                f"{name} {lost}.\n{lost.trace}".rstrip(),
                "what ends by itself"
                if lost.trace
                else f"processes that keep going; {self.lost} had been lost before",
                "mend what raised; the last lines say where."
                if lost.trace
                else "give them more memory, or run fewer at a time.",
            ) from None
        self.lost += 1
        warnings.warn(
            f"{name} {lost}; it is made again ({self.lost} of {self.again}).", stacklevel=3
        )
