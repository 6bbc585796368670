"""Several workers that learn together, each from environments of its own: what they agree on, so
that all make as many updates, and end together."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tandem.errors import WorkerError

GOES_ON, ENDS, FAILS = range(3)


class Rounds:
    """A round is an episode of each environment of every worker, and the updates after it. Each
    method but `leave` waits for the other workers to call one, and raises WorkerError where one
    was lost, or has raised something."""

    def __init__(self, layout: Any) -> None:
        self.layout = layout
        self.begin(0, lambda: 0)

    @property
    def is_first(self) -> bool:
        """Whether this worker decides when training ends, and writes the files."""
        return bool(self.layout.rank == 0)

    def begin(self, episodes: int | None, played: Callable[[], int]) -> None:
        """Prepares a call that trains for this many episodes; `played` counts them."""
        self._episodes, self._played = episodes, played
        self._has_enough = self.enough = episodes == 0  # this worker; all workers
        self.over = False  # whether a worker has said that training ends

    def end_round(self, updates: int) -> int:
        """Returns how many updates follow a round: the least that any worker has rows for."""
        self._has_enough = self._episodes is not None and self._played() >= self._episodes
        return self._agree(updates)

    def ready(self, ready: bool) -> bool:
        """Returns whether all workers have rows for another update."""
        return bool(self._agree(int(ready)))

    def stops(self, asked: bool) -> bool:
        """Returns whether any worker was asked to stop, amid the updates after a round."""
        self._agree(0, ENDS if asked else GOES_ON)
        return self.over

    def leave(self, fails: bool) -> None:
        """Tells the others that this worker ends, unless they know."""
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
