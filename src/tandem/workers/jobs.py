"""Jobs in workers, several at a time. `--seeds`, `find`, `sweep` and `ParallelFinder` use it."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from math import inf
from typing import Any, NamedTuple, Protocol

from tandem.errors import WorkerError
from tandem.workers import ray as cluster
from tandem.workers.process import SLICE, Process, WorkerHandle, WorkerLost, begun, end

Request = tuple[Any, ...]  # a method of the worker's object, by name, and its arguments


class Carrier(Protocol):
    """Starts and stops workers."""

    def start(self, place: int) -> WorkerHandle:
        """A new worker. Its first answer says that it has started. place: a number below
        `Jobs.at_once` that no running worker has."""

    def stop(self, worker: WorkerHandle) -> None:
        """Interrupts the job that the worker is at."""


class Processes:
    """Processes of this machine, each with an object `make(*arguments)`. A process that is stopped
    gets SIGTERM."""

    def __init__(self, make: Callable[..., Any], *arguments: Any) -> None:
        self.make, self.arguments = make, arguments

    def start(self, place: int) -> WorkerHandle:
        return Process((), self.make, *self.arguments)

    def stop(self, worker: WorkerHandle) -> None:
        assert isinstance(worker, Process)
        worker.terminate()


class RayActors:
    """Actors on the Ray cluster at an address, each with `cpus` CPUs and an object `make()`. An
    actor that is stopped is killed."""

    def __init__(self, address: str, cpus: int, make: Callable[[], Any]) -> None:
        self._ray, self._cpus, self.make = cluster.connect(address), cpus, make

    @property
    def room(self) -> int:
        """How many actors the cluster has CPUs for; at least one."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 1.0)) // self._cpus)

    def start(self, place: int) -> WorkerHandle:
        actor = cluster.PlacedActor(self._ray, self._cpus, max_restarts=0)
        actor.begin(*begun(self.make))
        return actor

    def stop(self, worker: WorkerHandle) -> None:
        worker.kill()


class Jobs:
    """Runs jobs in at most `at_once` workers. A worker takes one job after another, at most `most`
    in all; then a new worker takes its place. `at_once` may change during the run."""

    def __init__(self, carrier: Carrier, at_once: int, most: float = inf) -> None:
        self.carrier, self.at_once, self.most = carrier, at_once, most
        self.stopped = False
        self._running: dict[WorkerHandle, Any] = {}  # the job of each
        self._idle: list[WorkerHandle] = []
        self._places: dict[WorkerHandle, int] = {}
        self._started: set[WorkerHandle] = set()
        self._interrupted: set[WorkerHandle] = set()
        self._made = Counter[WorkerHandle]()  # jobs of each worker

    @property
    def running(self) -> int:
        """How many jobs are under way."""
        return len(self._running)

    def run(
        self,
        take: Callable[[], tuple[Any, Request] | None],
        heard: Callable[[Any, Any], Request | None],
        look: Callable[[], object] = lambda: None,
    ) -> None:
        """Returns when no job is under way and `take` has none, or `stop` was called.

        take: the next job and its request, None if there is none for now. heard: called with a job
        and the answer of its worker, or WorkerLost; returns the job's next request, None if the job
        is over. look: called several times a second.

        However it is left, all workers end.
        """
        try:
            while True:
                while not self.stopped and self.running < self.at_once:
                    if (found := take()) is None:
                        break
                    self._begin(*found)
                if not self._running:
                    return
                running = list(self._running)
                for i in running[0].ready(running, SLICE):
                    self._hear(running[i], heard)
                look()
        finally:
            self._interrupt()
            end([*self._running, *self._idle])

    def stop(self) -> None:
        """Starts no other job, and interrupts those under way; `run` still hears their answers."""
        self.stopped = True
        self._interrupt()

    def _interrupt(self) -> None:
        for worker in list(self._running):
            if worker not in self._interrupted:  # a second signal may come at any moment
                self._interrupted.add(worker)
                self.carrier.stop(worker)

    def kill(self, job: Any) -> None:
        """Kills the worker that is at this job, which is then heard of as lost."""
        for worker in [w for w, other in self._running.items() if other is job]:
            worker.kill()

    def _begin(self, job: Any, request: Request) -> None:
        worker = self._idle.pop() if self._idle else self._new_worker()
        self._running[worker] = job
        worker.ask(*request)
        if self.stopped:  # by a signal, meanwhile
            self._interrupt()

    def _new_worker(self) -> WorkerHandle:
        taken = {self._places[worker] for worker in (*self._running, *self._idle)}
        place = next(i for i in range(len(taken) + 1) if i not in taken)
        worker = self.carrier.start(place)
        self._places[worker] = place
        return worker

    def _hear(self, worker: WorkerHandle, heard: Callable[[Any, Any], Request | None]) -> None:
        job = self._running[worker]
        try:
            answer = worker.answer(inf)
        except WorkerLost as lost:
            lost.at_start = worker not in self._started
            del self._running[worker], self._places[worker]
            self._started.discard(worker)
            heard(job, lost)
            return
        if worker not in self._started:
            self._started.add(worker)
            return
        if (request := heard(job, answer)) is not None:
            worker.ask(*request)
            return
        del self._running[worker]
        self._made[worker] += 1
        if self._made[worker] >= self.most:
            end([worker])
        elif worker.runs:
            self._idle.append(worker)


class Call(NamedTuple):
    """function(*arguments), for another process."""

    name: str  # in messages
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


class Caller:
    """In a worker's process: makes calls."""

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Returns function(*arguments)."""
        return function(*arguments)


def results(
    calls: Sequence[Call],
    at_once: int,
    done: Callable[[int, Any], None] = lambda i, result: None,
    again: int = 3,
    most: float = inf,
) -> list[Any]:
    """Makes calls in processes, and returns their results in order.

    done: called with the number and the result of each call as soon as it is there. again: how many
    calls in all are repeated because their process died; a warning names each. most: how many calls
    a process makes. Raises WorkerError if a call raises, or processes die more often.
    """
    found: list[Any] = [None] * len(calls)
    waiting, lost_so_far = list(range(len(calls))), 0

    def take() -> tuple[int, Request] | None:
        if not waiting:
            return None
        i = waiting.pop(0)
        return i, ("call", calls[i].function, *calls[i].arguments)

    def heard(i: int, answer: Any) -> None:
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

    Jobs(Processes(Caller), at_once, most).run(take, heard)
    return found
