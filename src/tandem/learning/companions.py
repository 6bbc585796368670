"""Processes beside that of a run, each with a device of its own, which make its updates with it:
the companions. They have the run's networks and optimizers, and no environments.

What a companion repeats is up to the function that it is given, `make(rank=...)`: it returns a
backend on which the same updates have been compiled, in the same order."""

from __future__ import annotations

import signal
import tempfile
import time
from collections.abc import Callable
from typing import Any

from tandem.errors import WorkerError
from tandem.workers.process import SLICE, START, Process, WorkerHandle, WorkerLost, end

GRACE = 3.0  # seconds in which those that are well notice that another one is lost
STILL = "did not respond"


class Companion:
    """In a process of its own: makes a backend, and repeats what rank 0 calls."""

    def __init__(self, make: Callable[..., Any], rank: int) -> None:
        # the whole group of processes may be told to end: rank 0 does it in good order
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self.layout = make(rank=rank).layout

    def join(self, folder: str, patience: float) -> None:
        """Meets the others in a folder."""
        self.layout.meet(folder, patience)

    def serve(self) -> bool:
        """Whether it was told to end; False where another process was lost."""
        return self.layout.serve()


class Companions:
    """Companions 1 to `count` - 1 of this process, who begin at once; `join` waits for them.

    One that dies or raises is noticed at the next sum with it, one that stands still after
    `patience` seconds: WorkerError, which names it, and all of them are ended."""

    setting = "devices"  # what users call their number

    def __init__(self, make: Callable[..., Any], count: int, patience: float) -> None:
        self.count, self.patience = count, patience
        self._processes = {rank: Process((), Companion, make, rank) for rank in range(1, count)}

    @property
    def processes(self) -> list[WorkerHandle]:
        """Those of ranks 1, 2, …"""
        return list(self._processes.values())

    def join(self, backend: Any) -> None:
        """From now on they repeat the calls of updates that are compiled on `backend`."""
        backend.layout.group.followers = self
        self._answers(START)
        with tempfile.TemporaryDirectory() as folder:
            for process in self.processes:
                process.ask("join", folder, self.patience)
            try:
                backend.layout.meet(folder, self.patience)
            except WorkerError:
                raise
            except RuntimeError as error:  # torch's, of one that did not come
                raise self.lost("it did not join the others") from error
            self._answers(self.patience)
        for process in self.processes:
            process.ask("serve")

    def _answers(self, least: float) -> None:
        since = time.monotonic()
        for rank, process in self._processes.items():
            try:
                process.answer(max(least, self.patience), since)
            except WorkerLost as lost:
                self.kill()
                raise self._error(rank, str(lost), lost.trace) from None

    def lost(self, how: str = "it did not reach an all-reduce") -> WorkerError:
        """See `torch_group.Followers`."""
        waiting, limit = dict(self._processes), time.monotonic() + GRACE
        # that of one who died or raised comes first; others say no more than that one was lost
        while waiting and (left := limit - time.monotonic()) > 0:
            ranks, processes = list(waiting), list(waiting.values())
            for i in processes[0].ready(processes, min(SLICE, left)):
                try:
                    waiting.pop(ranks[i]).answer(SLICE)
                except WorkerLost as lost:
                    self.kill()
                    return self._error(ranks[i], str(lost), lost.trace)
        self.kill()
        how = f"{STILL}: {how} within {self.patience:g} s"
        return self._error(next(iter(waiting), 1), how)

    def _error(self, rank: int, how: str, trace: str = "") -> WorkerError:
        raised = "fix the code that raised, shown in the last lines."
        return WorkerError(
            f"the process of rank {rank}, of {self.setting}={self.count}, {how}.\n{trace}".rstrip(),
            "processes that run until the end",
            raised if trace else self._again(how.startswith(STILL)),
        )

    def _again(self, still: bool) -> str:
        """What to do after one has died or hangs."""
        if still:
            return (
                "continue from the run's last checkpoint with resume=, on a busy machine with "
                f"device_timeout={2 * self.patience:g}."
            )
        return (  # by other numbers a batch may not divide
            "continue from the run's last checkpoint with resume=; if memory is short, with "
            "devices=1."
        )

    def kill(self) -> None:
        """At once."""
        for process in self.processes:
            process.kill()

    def end(self) -> None:
        """Sees to it that none of them is left, after they were told to end."""
        end(self.processes)
