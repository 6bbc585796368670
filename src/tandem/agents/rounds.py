"""Synchronization of workers that learn together, each from its own environments: all make the same
number of updates and end together."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tandem.errors import WorkerError

GOES_ON, ENDS, FAILS = range(3)


class Rounds:
    """Rounds of several workers: an episode of each environment of every worker, and the updates
    after it. Each method but `leave` waits for the other workers to call one, and raises
    WorkerError if one was lost or raised an error."""

    def __init__(self, layout: Any) -> None:
        self.layout = layout
        self.begin(0, lambda: 0)

    @property
    def is_first(self) -> bool:
        """True for the worker that decides when training ends, and writes the files."""
        return bool(self.layout.rank == 0)

    def begin(self, episodes: int | None, played: Callable[[], int]) -> None:
        """Prepare a call that trains for this many episodes; `played` counts them."""
        self._episodes, self._played = episodes, played
        self._has_enough = self.enough = episodes == 0  # this worker; all workers
        self.over = False  # whether any worker has ended training

    def end_round(self, updates: int) -> int:
        """Return the number of updates after a round: the minimum over workers of what their rows
        allow."""
        self._has_enough = self._episodes is not None and self._played() >= self._episodes
        return self._agree(updates)

    def ready(self, ready: bool) -> bool:
        """Return whether all workers have rows for another update."""
        return bool(self._agree(int(ready)))

    def stops(self, asked: bool) -> bool:
        """Return whether any worker was asked to stop during the updates after a round."""
        self._agree(0, ENDS if asked else GOES_ON)
        return self.over

    def leave(self, fails: bool) -> None:
        """Notify the others that this worker ends, unless training is already over."""
        if not self.over:
            with suppress(WorkerError):
                self._agree(0, FAILS if fails else ENDS)

    def _agree(self, updates: int, state: int = GOES_ON) -> int:
        table = self.layout.gather([updates, state, self._has_enough])
        states = table[:, 1].tolist()
        self.over, self.enough = any(states), bool(table[:, 2].all())
        if FAILS in states and state != FAILS:
            raise WorkerError(
                f"worker {states.index(FAILS)} of {len(states)} failed with an error.",
                "all workers to finish training",
                "check that worker's output; then restart all workers and restore the last saved "
                "files.",
            )
        return 0 if self.over else int(table[:, 0].min())
