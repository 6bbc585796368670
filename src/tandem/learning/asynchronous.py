"""Asynchronous learning by several actor-learners: each computes gradients at the weights that it
received, and this process, which owns the weights, applies them in the order of arrival (Mnih et
al. 2016, arXiv:1602.01783, section 4)."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from tandem.algorithms.base import Call
from tandem.algorithms.on_sequences import OnSequences
from tandem.envs.vector import Environments
from tandem.errors import NetworkError, NonFiniteError, ResumeError, SettingError
from tandem.learning.actor_learner import ActorLearner, LearnerSpec
from tandem.learning.collect.trajectories import EndedEpisode, read_ended
from tandem.learning.learners import Learner, Span
from tandem.learning.loop import Loop
from tandem.learning.parallel.env_factory import check_can_travel
from tandem.learning.parallel.transport import (
    RayTransport,
    SharedMemoryTransport,
    Transport,
    writable,
)
from tandem.learning.parallel.worker_group import Worker, WorkerGroup, merge_arrays
from tandem.learning.seeds import Generators
from tandem.learning.shared_replay import SharedReplay
from tandem.networks.plan import Weights, select
from tandem.types import Array, Batch, JSONDict, Tree, Update
from tandem.workers.process import WorkerHandle


def refuse(algorithm: str, needs: str, env: Any, o: Any) -> None:
    """Raise SettingError for a run that does not support `o.learners` actor-learners."""
    if o.learners == 1:
        return
    if needs != "sequences":
        raise SettingError(
            f"learners={o.learners} is not supported with {algorithm}.",
            "a3c, acer, impala or nstep_q",
            f"choose one of those, or give workers={o.learners}, which collect for one learner.",
        )
    for what, count in (("workers", o.workers), ("runners", o.runners)):
        if count:
            raise SettingError(
                f"learners={o.learners} and {what}={count}.",
                "only one of them: learners collect by themselves",
                f"leave {what} out.",
            )
    if 0 <= o.staleness < o.learners - 1:
        raise SettingError(
            f"staleness={o.staleness} with {o.learners} learners.",
            f"at least {o.learners - 1}, one update for each of the other learners",
            f"give staleness={o.learners - 1} or more, or learners={o.staleness + 1}.",
        )
    if o.devices > 1:
        raise SettingError(
            f"learners={o.learners} and devices={o.devices}.",
            "only one of them: each learner computes gradients on its own device",
            "leave devices out, or give learners=1.",
        )
    check_can_travel(env, f"learners={o.learners}")


def refuse_statistics(learners: int, settings: Any) -> None:
    """Raise SettingError if several learners would have to share running statistics."""
    for what, given in (
        ("normalize_observations", settings.normalize_observations),
        ("normalize_rewards", settings.normalize_rewards),
    ):
        if learners > 1 and given:
            raise SettingError(
                f"learners={learners} and {what}=True.",
                "one learner: several learners would have different statistics",
                f"give learners=1, or leave {what} out; {what}=False if the zoo's entry sets it.",
            )


class LearnerResult(NamedTuple):
    """Result of an actor-learner's round: the steps that it collected, and its gradient, if any."""

    valid: Array  # [T]  number of valid environment steps at each time step
    gradient: Array | None  # [size]
    metrics: dict[str, float]


class ActorLearners:
    """Replaces a loop's collector: `collect` waits for the next gradient.

    A gradient has to wait if applying it would make another one staler than `bound` updates. The
    deadlines of gradients in progress are met by earliest-deadline-first scheduling. With the
    tightest bound, the number of actor-learners minus one, they take turns and runs are
    reproducible; otherwise results depend on their speeds.

    An actor-learner that dies, raises or hangs is restarted by a `WorkerGroup`. Its unfinished
    episodes and its current gradient are lost. On one machine its replay buffer is in shared
    memory, and its successor continues with it. On a cluster the buffer is lost, except for what a
    checkpoint contains."""

    def __init__(
        self, spec: LearnerSpec, algorithm: OnSequences, environments: Environments
    ) -> None:
        o, count = spec.conf.options, int(spec.conf.options.learners)
        self.environments, self.n = environments, spec.env_factory.n
        self.bound = o.staleness if o.staleness >= 0 else 4 * count
        self.episodes: list[EndedEpisode] = []
        self.broken: list[int] = []
        self.env_steps = self.version = 0
        self.restarted = ""  # see `Collector`
        self.lag: int | None = None
        self.seconds = {"environment": 0.0, "acting": 0.0}
        self._turns = 0  # number of results handed over
        # turn by which each must hand over its result
        self._deadlines = [self.bound - count + 1 + i for i in range(count)]
        self._seen = [0] * count  # version (number of updates) of the weights that each has
        self._idle = list(range(count))
        self._arrived: list[tuple[int, JSONDict]] = []
        self._gradients: list[Array | None] = [None] * count  # newest gradient of each, [size]
        self._networks, each = algorithm.backend.networks, spec.conf.settings.envs
        self.replay: SharedReplay | None = None
        self.transport: Transport
        # The transport's slot of each, and the version of the weights in each slot. On a cluster
        # all share one slot, since the object store holds each version of the weights once
        self._slots = [0] * count if o.cluster else list(range(count))
        self._published: dict[int, int] = {}
        if o.cluster:
            self.transport = RayTransport(
                ActorLearner, spec, o.cluster, o.runner_cpus, count, o.worker_patience
            )
        else:
            self.replay = SharedReplay(algorithm, environments, count)
            gradient = {"gradient": ((algorithm.optimizer.size,), "<f4")}
            shapes = {i * each: {slot: gradient} for i, slot in enumerate(self._slots)}
            self.transport = SharedMemoryTransport(ActorLearner, spec, self._weights, shapes)
        shares = [(i * each, each) for i in range(count)]
        self.group = WorkerGroup(
            environments.name, shares, o.worker_patience, o.worker_restarts, self._start
        )

    @property
    def begun_steps(self) -> int:
        return self.env_steps

    def collect(self, steps: int, actor: object, noise: Tree = None) -> LearnerResult:
        """Return the next result, from the first actor-learner that may hand one over. The previous
        one first resumes with the current weights."""
        began = perf_counter()
        for i in self._idle:
            self._go(self.group.workers[i])
        self._idle = []
        while (
            k := next((k for k, (i, _) in enumerate(self._arrived) if self._may(i)), None)
        ) is None:
            self._arrive()
        i, info = self._arrived.pop(k)
        self._idle, self._turns = [i], self._turns + 1
        self._deadlines[i] = self._turns + self.bound
        self.seconds["environment"] += perf_counter() - began
        if info["fault"]:
            kind, *parts = info["fault"]
            raise {"NonFiniteError": NonFiniteError, "NetworkError": NetworkError}[kind](*parts)
        self.episodes = self.group.workers[i].numbered(read_ended(info["episodes"]))
        self.lag = self.version - self._seen[i]
        valid = np.array(info["valid"], np.int64)
        self.env_steps += int(valid.sum())
        return LearnerResult(valid, self._gradients[i] if info["made"] else None, info["metrics"])

    def _may(self, i: int) -> bool:
        """Return True if the others can still meet their deadlines, one per turn, if i has this
        turn."""
        others = sorted(d for j, d in enumerate(self._deadlines) if j != i)
        return all(self._turns + 1 + k <= d for k, d in enumerate(others))

    @property
    def _weights(self) -> dict[str, Weights]:
        return {role: network.read() for role, network in self._networks.items()}

    def _start(self, worker: Worker) -> WorkerHandle:
        """Start or restart an actor-learner."""
        i = worker.first // worker.count
        return self.transport.start(worker, *(self.replay.of(i) if self.replay else ()))

    def _go(self, worker: Worker) -> None:
        """Send the current weights to an actor-learner, and request its next round."""
        i = self.group.workers.index(worker)
        slot, self._seen[i] = self._slots[i], self.version
        if self._published.get(slot) != self.version:
            self._published[slot] = self.version
            self.transport.publish(slot, self._weights)
        calls = self.group.calls_for(worker)
        self.transport.request(worker, slot, [self.env_steps, self.version, calls], {})

    def _arrive(self) -> None:
        """Wait for the result of an actor-learner at work."""
        here = {*self._idle, *(i for i, _ in self._arrived)}
        i, answer = self.group.first(
            [i for i in range(len(self.group.workers)) if i not in here], self._go
        )
        info, arrays = self.transport.receive(self.group.workers[i], self._slots[i], answer)
        learned = info.pop("learned")
        if self.replay is not None:
            self.replay.learned[i] = learned
        if info["made"]:
            self._gradients[i] = writable(arrays["gradient"])
        self._arrived.append((i, info))

    # Saving

    def state(self) -> tuple[JSONDict, dict[str, Array]]:
        """As `Collector.state`; includes pending gradients, after waiting for them."""
        data = {
            "env_steps": self.env_steps,
            "seconds": dict(self.seconds),
            "restarts": 0,
            "turns": self._turns,
        }
        if self.group.calls:
            data["calls"] = [*self.group.calls]
        workers = self.group.workers
        if self.group.given_up:
            return data | {"begun": False, "lives": [w.generation + 1 for w in workers]}, {}
        answers = self._after_calls("collected")
        parts, arrays = [part for part, _ in answers], merge_arrays(answers)
        learners = [i for i, info in self._arrived if info["made"]]
        arrays |= {f"gradient/{i}": np.array(self._gradients[i]) for i in learners}
        data |= {
            "begun": True,
            "lives": [w.generation for w in workers],
            "parts": parts,
            "restarts": self.group.restarts,
        }
        data |= {
            "version": self.version,
            "arrived": self._arrived,
            "idle": self._idle,
            "seen": self._seen,
        }
        return data | {"deadlines": self._deadlines}, arrays

    def load_state(self, data: JSONDict, arrays: dict[str, Array]) -> None:
        """As `Collector.load_state`. Raise ResumeError for a run with another number of
        actor-learners."""
        workers = self.group.workers
        if len(data.get("lives", [])) != len(workers):
            raise ResumeError(
                f"the run was saved with {len(data.get('lives', []))} learners, not "
                f"{len(workers)}.",
                "the same number, since learners hold the environments",
                f"give learners={len(data.get('lives', []))}.",
            )
        self.env_steps = data["env_steps"]
        self.seconds = dict(data["seconds"])
        self._turns = data["turns"]
        self.group.restarts = data["restarts"]
        self.group.live(data["lives"])
        self.make_calls(data.get("calls", []))
        for worker in workers if "parts" in data else ():
            worker.called = len(self.group.calls)
        reasons = self.tell("load_collected", data.get("parts", []), arrays)
        self.restarted = next(filter(None, reasons), "")
        if not data["begun"]:
            self.restarted = "The checkpoint does not hold the learners' episodes."
            self._deadlines = [self._turns + d for d in self._deadlines]
            return
        self.version, self._idle = data["version"], list(data["idle"])
        self._seen, self._deadlines = list(data["seen"]), list(data["deadlines"])
        self._arrived = [(i, info) for i, info in data["arrived"]]
        for i, info in self._arrived:
            if info["made"]:
                self._gradients[i] = writable(arrays[f"gradient/{i}"])

    def learned(self, replay: bool) -> tuple[list[JSONDict], dict[str, Array]]:
        """Return the state of each learner, all of them idle: its pending updates, and with
        `replay` its replay buffer."""
        if self.replay is not None:
            return self.replay.state(replay)
        if self.group.given_up:
            return [{"owed": 0} for _ in self.group.workers], {}
        return self.ask("learned", replay)

    def load_learned(self, each: list[JSONDict], arrays: dict[str, Array]) -> None:
        """Restore the state that `learned` returned."""
        self._published = {}  # the published weights are outdated
        if self.replay is None:
            self.tell("load_learned", each, arrays)
        else:
            self.replay.load_state(each, arrays)
            self.group.tell("load_learned", [(learned, {}) for learned in self.replay.learned])

    def ask(self, name: str, *arguments: object) -> tuple[list[JSONDict], dict[str, Array]]:
        """Call a method that returns data and arrays in each actor-learner, all of them idle."""
        answers = [] if self.group.given_up else self.group.gather(name, *arguments)
        return [data for data, _ in answers], merge_arrays(answers)

    def tell(self, name: str, data: Sequence[object], arrays: dict[str, Array]) -> list[Any]:
        """Send each actor-learner its own data and arrays, and return their answers; do nothing
        without data."""
        each = [(own, select(arrays, str(i))) for i, own in enumerate(data)]
        return self.group.tell(name, each) if data else []

    def make_calls(self, calls: Sequence[Any]) -> None:
        """See `Collector.make_calls`; each learner makes the calls before its next round."""
        if calls:
            self.environments.make_calls(calls)  # raises for calls that are not possible
        self.group.calls += calls

    def attribute(self, name: str) -> list[Any]:
        """See `Collector.attribute`; waits for rounds in progress."""
        return [x for values in self._after_calls("attribute", name) for x in values]

    def _after_calls(self, name: str, *arguments: object) -> list[Any]:
        """Return each learner's answer, once all are idle and have made all calls."""
        while len(self._arrived) + len(self._idle) < len(self.group.workers):
            self._arrive()
        return self.group.gather_after_calls(name, *arguments)

    def request_stop(self) -> None:
        """See `WorkerGroup.request_stop`."""
        self.group.request_stop()

    def close(self) -> None:
        """End all learners, and close this process's environments."""
        self.group.end()
        self.environments.close()


class CentralLearner(Learner):
    """Replaces a loop's learner: applies the gradients."""

    def __init__(self, algorithm: OnSequences, learners: ActorLearners) -> None:
        self.algorithm = algorithm
        self.learners = learners
        self.block = algorithm.settings.rollout
        self.updates = 0
        self._run = algorithm.backend.compile(self._step)

    def _step(self, b: Batch) -> Update:
        backend, optimizer = self.algorithm.backend, self.algorithm.optimizer
        gradient = optimizer.from_vector(b.extra["gradient"])
        backend.apply(optimizer, gradient, b.settings["learning_rate"])
        self.algorithm.follow(b.settings)
        return Update({}, ())

    def learn(self, trajectory: Any, span: Span) -> dict[str, float]:
        """Apply the gradient, and return the metrics of its loss; empty without a gradient."""
        if trajectory.gradient is None:
            return {}
        schedule = self.algorithm.schedule(
            Call(np.full(1, span.progress), span.begin, span.end, self.updates)
        )
        gradient = {"gradient": trajectory.gradient[None]}
        self.updates += self._run(Batch((), (), extra=gradient, settings=schedule)).applied
        return trajectory.metrics

    def state(self, replay: bool) -> tuple[JSONDict, dict[str, Array]]:
        each, arrays = self.learners.learned(replay)
        return {"updates": self.updates, "each": each}, arrays

    def load_state(self, data: JSONDict, arrays: dict[str, Array]) -> None:
        self.updates = data["updates"]
        self.learners.load_learned(data["each"], arrays)


class Asynchronous(Loop):
    """The loop of the process that owns the weights and steps no environments."""

    def __init__(
        self,
        learners: ActorLearners,
        algorithm: OnSequences,
        environments: Environments,
        generators: Generators,
    ) -> None:
        super().__init__(
            algorithm,
            algorithm.backend,
            environments,
            generators,
            learner=CentralLearner(algorithm, learners),
        )
        self.collector = learners

    def _sync(self) -> None:
        """Do nothing: actor-learners receive the weights with each request."""

    def _noise(self, begin: int) -> tuple[None, None]:
        return None, None
