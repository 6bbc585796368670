"""Parallel jobs in workers, used by `--seeds`, `find`, `sweep` and `ParallelFinder`."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple

from tandem.errors import WorkerError
from tandem.workers import ray as cluster
from tandem.workers.process import SLICE, START, Process, WorkerHandle, WorkerLost, begun, end


class Request(NamedTuple):
    """A method call of the worker's object. Without a reply within `patience` seconds the worker is
    lost."""

    method: str
    arguments: tuple[object, ...] = ()
    patience: float = inf


class Processes:
    """Worker processes on this machine, each with an object `make()`. A process is stopped with
    SIGTERM."""

    def __init__(self, make: Callable[..., object]) -> None:
        self.make = make

    def start(self, place: int) -> WorkerHandle:
        """Start a worker. Its first reply confirms that it has started. place: a number below
        `Jobs.at_once` that no running worker has."""
        return Process((), self.make)

    def stop(self, worker: WorkerHandle) -> None:
        """Interrupt the worker's current job."""
        assert isinstance(worker, Process)
        worker.terminate()


class RayActors:
    """Actors on the Ray cluster at an address, each with `cpus` CPUs and an object `make()`. An
    actor is stopped by killing it."""

    def __init__(self, address: str, cpus: int, make: Callable[[], object]) -> None:
        self._ray, self._cpus, self.make = cluster.connect(address), cpus, make

    @property
    def room(self) -> int:
        """Number of actors that the cluster has CPUs for; at least one."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 1.0)) // self._cpus)

    def start(self, place: int) -> WorkerHandle:
        actor = cluster.RayActor(self._ray, self._cpus, max_restarts=0)
        actor.begin(*begun(self.make))
        return actor

    def stop(self, worker: WorkerHandle) -> None:
        worker.kill()


Carrier = Processes | RayActors


@dataclass(eq=False)
class _Worker:
    handle: WorkerHandle
    place: int
    job: object = None
    asked: float = 0.0  # time.monotonic() of the last request
    patience: float = inf  # maximum seconds until its reply
    has_started: bool = False
    is_interrupted: bool = False
    made: int = 0  # number of jobs


class Jobs:
    """Runner of jobs in at most `at_once` workers, which can change during the run. A worker runs
    one job after another, up to `most` jobs; then a new worker replaces it. A worker that has not
    started after `start` seconds is lost."""

    def __init__(
        self, carrier: Carrier, at_once: int, most: float = inf, start: float = inf
    ) -> None:
        self.carrier, self.at_once, self.most, self.start = carrier, at_once, most, start
        self.stopped = False
        self._running: list[_Worker] = []
        self._idle: list[_Worker] = []

    @property
    def running(self) -> list[Any]:
        """The current jobs."""
        return [worker.job for worker in self._running]

    def run(
        self,
        take: Callable[[], tuple[Any, Request] | None],
        heard: Callable[[Any, Any], Request | None],
        look: Callable[[], object] = lambda: None,
    ) -> None:
        """Run jobs until none is running and `take` has none, or `stop` was called.

        take: returns the next job and its request, or None if there is none for now. heard: called
        with a job and its worker's reply, or WorkerLost; returns the job's next request, or None if
        the job is finished. look: called several times a second.

        All workers end when this method returns or raises.
        """
        try:
            while True:
                while not self.stopped and len(self._running) < self.at_once:
                    if (found := take()) is None:
                        break
                    self._begin(*found)
                if not self._running:
                    return
                for worker in self._answering():
                    self._hear(worker, heard)
                look()
        finally:
            self._interrupt()
            end([worker.handle for worker in (*self._running, *self._idle)])

    def stop(self) -> None:
        """Start no more jobs, and interrupt the running ones; `run` still receives their
        replies."""
        self.stopped = True
        self._interrupt()

    def _interrupt(self) -> None:
        for worker in list(self._running):
            if not worker.is_interrupted:  # a second signal may arrive at any moment
                worker.is_interrupted = True
                self.carrier.stop(worker.handle)

    def _begin(self, job: object, request: Request) -> None:
        worker = self._idle.pop() if self._idle else self._new_worker()
        worker.job = job
        self._running.append(worker)
        self._ask(worker, request)
        if self.stopped:  # by a signal, meanwhile
            self._interrupt()

    def _new_worker(self) -> _Worker:
        taken = {worker.place for worker in (*self._running, *self._idle)}
        place = next(i for i in range(len(taken) + 1) if i not in taken)
        return _Worker(self.carrier.start(place), place)

    def _ask(self, worker: _Worker, request: Request) -> None:
        worker.handle.ask(request.method, *request.arguments)
        worker.asked, worker.patience = time.monotonic(), request.patience

    def _limit(self, worker: _Worker) -> float:
        return worker.patience if worker.has_started else self.start

    def _answering(self) -> list[_Worker]:
        """Return the workers that have a reply, are lost, or have timed out."""
        handles = [worker.handle for worker in self._running]
        ready, now = handles[0].ready(handles, SLICE), time.monotonic()
        return [
            worker
            for i, worker in enumerate(self._running)
            if i in ready or now - worker.asked > self._limit(worker)
        ]

    def _hear(self, worker: _Worker, heard: Callable[[Any, Any], Request | None]) -> None:
        try:
            answer = worker.handle.answer(self._limit(worker), worker.asked)
        except WorkerLost as lost:
            lost.at_start = not worker.has_started
            self._running.remove(worker)
            heard(worker.job, lost)
            return
        if not worker.has_started:
            worker.has_started, worker.asked = True, time.monotonic()
            return
        if (request := heard(worker.job, answer)) is not None:
            self._ask(worker, request)
            return
        self._running.remove(worker)
        worker.made += 1
        if worker.made >= self.most:
            end([worker.handle])
        elif worker.handle.runs:
            self._idle.append(worker)


class FunctionCall(NamedTuple):
    """A call function(*arguments) for another process."""

    name: str  # in messages
    function: Callable[..., object]
    arguments: tuple[object, ...]


class Caller:
    """Object of a worker process that makes function calls."""

    def call(self, function: Callable[..., object], *arguments: object) -> object:
        """Return function(*arguments)."""
        return function(*arguments)


def results(
    calls: Sequence[FunctionCall],
    at_once: int,
    done: Callable[[int, Any], None] = lambda i, result: None,
    again: int = 3,
    most: float = inf,
) -> list[Any]:
    """Make calls in processes, and return their results in order.

    done: called with the index and result of each call as soon as it is available. again: total
    number of calls to repeat because their process died; a warning names each. most: maximum calls
    per process. Raises WorkerError if a call raises, or if processes die more often.
    """
    found: list[Any] = [None] * len(calls)
    waiting, lost_so_far = list(range(len(calls))), 0

    def take() -> tuple[int, Request] | None:
        if not waiting:
            return None
        i = waiting.pop(0)
        return i, Request("call", (calls[i].function, *calls[i].arguments))

    def heard(i: int, answer: object) -> None:
        nonlocal lost_so_far
        if not isinstance(answer, WorkerLost):
            found[i] = answer
            done(i, answer)
            return
        name, trace = calls[i].name, answer.trace
        if trace or lost_so_far >= again:
            raise WorkerError(
                f"{name} {answer}.\n{trace}".rstrip(),
                "a call that returns"
                if trace
                else f"processes that keep running; {lost_so_far} had been lost before",
                "fix the error; the last lines show where it is."
                if trace
                else "give them more memory, or run fewer at a time.",
            ) from None
        lost_so_far += 1
        warnings.warn(f"{name} {answer}; it is run again ({lost_so_far} of {again}).", stacklevel=2)
        waiting.insert(0, i)

    Jobs(Processes(Caller), at_once, most, START).run(take, heard)
    return found
