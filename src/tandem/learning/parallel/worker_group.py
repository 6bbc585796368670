"""Group of workers that restarts lost ones."""

from __future__ import annotations

import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tandem.errors import WorkerError
from tandem.learning.collect.trajectories import EndedEpisode
from tandem.types import Array, EpisodeResult
from tandem.workers.process import SLICE, START, WorkerHandle, WorkerLost, end

# minimum time limits for answers after a stop request, in seconds: with earlier answers, without
STOP_PATIENCE, FIRST_STOP_PATIENCE = 1.0, 10.0


class Worker:
    """A process and its environments, first to first + count. `generation` counts its restarts."""

    def __init__(self, first: int, count: int) -> None:
        self.first, self.count, self.generation = first, count, 0
        self.called = 0  # number of the group's calls already sent to it
        self.process: WorkerHandle | None = None
        self.asked = deque[float]()  # times of open requests (time.monotonic())

    @property
    def columns(self) -> slice:
        return slice(self.first, self.first + self.count)

    @property
    def part(self) -> tuple[int, int, int]:
        """Arguments of `EnvFactory.make`: (first, count, generation)."""
        return self.first, self.count, self.generation

    @property
    def environments(self) -> range:
        return range(self.first, self.first + self.count)

    def numbered(self, episodes: list[EndedEpisode]) -> list[EndedEpisode]:
        """Return its episodes with the global numbers of their environments."""
        return [EndedEpisode(t, EpisodeResult(self.first + e.env, *e[1:])) for t, e in episodes]

    def ask(self, name: str, *arguments: object) -> None:
        """See `Process.ask`."""
        assert self.process is not None
        self.asked.append(time.monotonic())
        self.process.ask(name, *arguments)

    def send_bytes(self, data: bytes = b"") -> None:
        """See `Process.send_bytes`."""
        assert self.process is not None
        self.asked.append(time.monotonic())
        self.process.send_bytes(data)


class WorkerGroup:
    """Group of workers for shares (first, count) of the environments `name`; `begin` starts a
    worker's process.

    A worker that dies, raises, or takes longer than `patience` seconds to answer is restarted with
    a warning, up to `restarts` times in total; then WorkerError is raised."""

    def __init__(
        self,
        name: str,
        shares: list[tuple[int, int]],
        patience: float,
        restarts: int,
        begin: Callable[[Worker], WorkerHandle],
        remedy: str = "",
    ) -> None:
        """remedy: advice for a permanently lost worker, if the default (options of a run) does not
        apply."""
        self.name, self.patience, self.allowed, self._begin = name, patience, restarts, begin
        self._remedy = remedy or (
            f"a new or resumed run can give it more time (worker_patience={2 * patience:g}) and "
            f"more restarts (worker_restarts={restarts + 1})."
        )
        self.restarts = 0  # so far
        self.given_up = self.stopping = False
        self.calls: list[object] = []  # made in all environments, in order: see `calls_for`
        # latest response times in seconds; the first ones include imports and compilation
        self._took = deque[float](maxlen=20 * len(shares))
        self.workers = [Worker(first, count) for first, count in shares]
        try:
            for worker in self.workers:
                worker.process = begin(worker)
            for i in range(len(self.workers)):
                self._begun(i)
        except BaseException:
            self.end()
            raise

    def first(self, of: Sequence[int], again: Callable[[Worker], None]) -> tuple[int, Any]:
        """Return (index, answer) of the first of these workers to answer; `again` as in
        `answer`."""
        began = time.monotonic()
        handles = [p for i in of if (p := self.workers[i].process) is not None]
        ready = handles[0].ready(handles, SLICE)
        while not ready and time.monotonic() - began < self._limit():
            ready = handles[0].ready(handles, SLICE)
        i = of[ready[0] if ready else 0]
        return i, self.answer(i, again, began)

    def _begun(self, i: int) -> None:
        """Wait until worker i has started."""
        self.answer(i, least=START)

    def answer(
        self,
        i: int,
        again: Callable[[Worker], None] | None = None,
        since: float | None = None,
        least: float = 0.0,
    ) -> Any:
        """Return worker i's answer to its oldest open request.

        Waits for the group's patience, or `least` seconds if that is longer, from `since`. A lost
        worker is restarted, and `again` repeats its open requests in order. Without `again`, as
        during a start, a lost worker raises WorkerError."""
        worker = self.workers[i]
        assert worker.process is not None
        try:
            found = worker.process.answer(lambda: self._limit(least), since)
            if not least:
                self._took.append(time.monotonic() - worker.asked.popleft())
            return found
        except WorkerLost as lost:
            name = f"worker {i + 1} ({_span(worker)} of {self.name})"
            if again is None or self.restarts >= self.allowed or self.stopping:
                self.given_up = True
                # the others get no more requests, and saving the run may take a while
                for other in self.workers:
                    if other.process is not None and self.stopping and other.asked:
                        other.process.kill()  # its time is over too
                    elif other.process is not None:
                        other.process.close()
                raise WorkerError(
                    f"{name} {lost}.\n{lost.trace}".rstrip(),
                    f"workers that keep running; {self.restarts} had been restarted before",
                    f"fix the environment, or give it more memory; {self._remedy}",
                ) from None
            self.restarts += 1
            warnings.warn(
                f"{name} {lost}; it is restarted ({self.restarts} of {self.allowed}), and its "
                f"unfinished episodes are lost.\n{lost.trace}".rstrip(),
                stacklevel=2,
            )
        self.restart(i, worker.generation + 1)
        again(worker)
        return self.answer(i, again)

    def restart(self, i: int, generation: int) -> None:
        """Restart worker i with this generation."""
        worker = self.workers[i]
        if worker.process is not None and worker.process.runs:
            worker.process.end()
        worker.asked.clear()
        worker.called = 0
        worker.generation, worker.process = generation, self._begin(worker)
        self._begun(i)

    def calls_for(self, worker: Worker, count: int | None = None) -> list[object]:
        """Return the calls not yet sent to a worker, of the first `count` or all, for its next
        request. They precede the same block in every worker, and are repeated after a restart."""
        due = self.calls[worker.called : count]
        worker.called += len(due)
        return due

    def gather(self, name: str, *arguments: object) -> list[Any]:
        """Send a request to all workers and return their answers."""

        def once_more(worker: Worker) -> None:
            worker.ask(name, *arguments)

        return self._answers(once_more, once_more)

    def gather_after_calls(
        self, name: str, *arguments: object, again: Callable[[Worker], None] = lambda worker: None
    ) -> list[Any]:
        """Gather answers with a worker's outstanding calls as the last argument. `again` repeats
        the other open requests of a restarted worker."""

        def ask(worker: Worker) -> None:
            worker.ask(name, *arguments, self.calls_for(worker))

        def all_again(worker: Worker) -> None:
            again(worker)
            ask(worker)

        return self._answers(ask, all_again)

    def _answers(self, ask: Callable[[Worker], None], again: Callable[[Worker], None]) -> list[Any]:
        for worker in self.workers:
            ask(worker)
        return [self.answer(i, again) for i in range(len(self.workers))]

    def tell(self, name: str, each: Iterable[tuple[object, ...]]) -> list[Any]:
        """Send each worker its own arguments and return their answers."""
        for worker, arguments in zip(self.workers, each, strict=True):
            worker.ask(name, *arguments)
        return [self.answer(i) for i in range(len(self.workers))]

    def live(self, generations: Iterable[int]) -> None:
        """Restart the workers whose generation differs."""
        for i, generation in enumerate(generations):
            # its seeds depend on its generation
            if self.workers[i].generation != generation:
                self.restart(i, generation)

    def request_stop(self) -> None:
        """Announce the end of the run: from now on, the time limit is twice the slowest recent
        answer, and workers are not restarted."""
        self.stopping = True

    def _limit(self, least: float = 0.0) -> float:
        """Return the current time limit of an answer in seconds, at least `least` before a stop
        request."""
        if not self.stopping:
            return max(self.patience, least)
        usual = max(STOP_PATIENCE, 2 * max(self._took)) if self._took else FIRST_STOP_PATIENCE
        return min(self.patience, usual)

    def end(self) -> None:
        """Stop all workers."""
        end([w.process for w in self.workers if w.process is not None])


def merge_arrays(states: Iterable[tuple[object, Mapping[str, Array]]]) -> dict[str, Array]:
    """Merge the arrays of several states (data, arrays), named NUMBER/NAME."""
    return {f"{i}/{name}": x for i, (_, arrays) in enumerate(states) for name, x in arrays.items()}


def _span(worker: Worker) -> str:
    first, last = worker.environments[0], worker.environments[-1]
    return f"environment {last}" if first == last else f"environments {first} to {last}"
