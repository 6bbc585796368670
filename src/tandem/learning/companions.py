"""Companions: additional processes of a run, each with its own device, that take part in its
updates. They have the run's networks and optimizers, but no environments.

The function `make(rank=...)` determines the calls that a companion repeats: it returns a backend on
which the same updates were compiled, in the same order."""

from __future__ import annotations

import signal
import tempfile
import time
from collections.abc import Callable
from typing import Any

from tandem.errors import WorkerError
from tandem.workers.process import SLICE, START, Process, WorkerHandle, WorkerLost, end

GRACE = 3.0  # seconds in which healthy processes notice that another one is lost
STILL = "did not respond"


class Companion:
    """Runs in its own process: creates a backend, and repeats the calls of rank 0."""

    def __init__(self, make: Callable[..., Any], rank: int) -> None:
        # a signal may reach the whole process group: rank 0 shuts down in order
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self.layout = make(rank=rank).layout

    def join(self, folder: str, patience: float) -> None:
        """Connect to the other processes through a folder."""
        self.layout.meet(folder, patience)

    def serve(self) -> bool:
        """Repeat calls until the end; return False if another process was lost."""
        return self.layout.serve()


class Companions:
    """Companions 1 to `count` - 1 of this process, which start immediately; `join` waits for them.

    A companion that dies or raises is noticed at the next all-reduce, one that hangs after
    `patience` seconds. Then a WorkerError names it, and all companions are killed."""

    setting = "devices"  # the user's setting for their number

    def __init__(self, make: Callable[..., Any], count: int, patience: float) -> None:
        self.count, self.patience = count, patience
        self._processes = {rank: Process((), Companion, make, rank) for rank in range(1, count)}

    @property
    def processes(self) -> list[WorkerHandle]:
        """Processes of ranks 1, 2, …"""
        return list(self._processes.values())

    def join(self, backend: Any) -> None:
        """Connect them to `backend`, whose calls of compiled updates they repeat from now on."""
        backend.layout.group.followers = self
        self._answers(START)
        with tempfile.TemporaryDirectory() as folder:
            for process in self.processes:
                process.ask("join", folder, self.patience)
            try:
                backend.layout.meet(folder, self.patience)
            except WorkerError:
                raise
            except RuntimeError as error:  # raised by torch if one did not connect
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
        # the process that died or raised responds first; others only report that one was lost
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
        """Return the fix for a process that died or hangs."""
        if still:
            return (
                "continue from the run's last checkpoint with resume=, on a busy machine with "
                f"device_timeout={2 * self.patience:g}."
            )
        return (  # other numbers of devices may not divide the batch
            "continue from the run's last checkpoint with resume=; if memory is short, with "
            "devices=1."
        )

    def kill(self) -> None:
        """Kill all companions immediately."""
        for process in self.processes:
            process.kill()

    def end(self) -> None:
        """Make sure that no companion is left, after they were asked to end."""
        end(self.processes)
