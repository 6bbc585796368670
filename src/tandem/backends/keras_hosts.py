"""Updates that several processes with Keras make together, on one machine or several: what the
first one calls, the others repeat, with the arrays that it sends, and with its variables wherever
anything but a call has changed them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

import numpy as np

from tandem.backends import backend
from tandem.backends.variables import host
from tandem.types import Array, Batch, Tree, Variable, tree_map

Run = Callable[..., backend.Outcome]


class Group(Protocol):
    """The first process's links to the others (`parallel.links.Lead`)."""

    broken: bool

    def send(self, verb: str, data: Any = None, arrays: Tree = ()) -> None:
        """Gives them a message."""

    def during(self, call: Callable[[], Any], losing: tuple[type[Exception], ...]) -> Any:
        """What a call gives that all make; WorkerError where one of them is lost meanwhile."""


class Calls:
    """Calls of updates that are compiled in each process, in the same order. group: of the first;
    the others, who have none, `repeat` them.

    changed: which of some variables are not as the latest call left them. leave: is told that they
    are. losing: the engine's exceptions where processes lose each other."""

    def __init__(
        self,
        group: Group | None,
        changed: Callable[[list[Variable]], Sequence[int]],
        leave: Callable[[list[Variable]], None],
        losing: tuple[type[Exception], ...],
    ) -> None:
        self.group, self.losing = group, losing
        self._changed, self._leave = changed, leave
        self._runs: list[tuple[Run, list[Variable]]] = []

    def repeated(self, run: Run, variables: list[Variable]) -> Run:
        """`run`, a call of updates of these variables, as one of all processes."""
        self._runs.append((run, variables))
        if (group := self.group) is None:
            return run
        number = len(self._runs) - 1

        def led(batches: Batch, indices: Array | None = None) -> backend.Outcome:
            def made() -> backend.Outcome:
                changed = list(self._changed(variables))
                values = tuple(np.asarray(host(variables[i])) for i in changed)
                tree = tree_map(np.asarray, ((batches, indices), values))
                group.send("call", [number, changed], tree)
                outcome = run(batches, indices)
                self._leave(variables)
                return outcome

            outcome: backend.Outcome = group.during(made, self.losing)
            return outcome

        return led

    def repeat(self, call: list[Any], arrays: Tree) -> None:
        """Another process than the first: makes a call of that."""
        number, changed = call
        (batches, indices), values = arrays
        run, variables = self._runs[number]
        for i, x in zip(changed, values, strict=True):
            variables[i].assign(x)
        run(batches, indices)

    def close(self) -> None:
        """The first process: there are no more calls."""
        if self.group is not None and not self.group.broken:
            with suppress(OSError):  # one that is gone needs no word
                self.group.send("end")
