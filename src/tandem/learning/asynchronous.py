"""Learning by several actor-learners at once: each takes gradients at the weights that it was
given, and this process, which owns the weights, makes the steps along them in the order in which
they come (Mnih et al. 2016, arXiv:1602.01783, section 4)."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from tandem.algorithms.base import Call
from tandem.algorithms.on_sequences import OnSequences
from tandem.collect.trajectories import EndedEpisode, read_ended
from tandem.envs.vector import Environments
from tandem.errors import NetworkError, NonFiniteError, ResumeError, SettingError
from tandem.learning.actor_learner import ActorLearner, LearnerSpec
from tandem.learning.learners import Learner, Span
from tandem.learning.loop import Loop
from tandem.learning.seeds import Generators
from tandem.learning.shared_replay import SharedReplay
from tandem.networks.plan import Weights, select
from tandem.parallel.env_factory import check_can_travel
from tandem.parallel.transport import RayTransport, SharedMemoryTransport, Transport, writable
from tandem.parallel.worker_group import Worker, WorkerGroup, merge_arrays
from tandem.types import Array, Batch, JSONDict, Tree, Update
from tandem.workers.process import WorkerHandle


def refuse(algorithm: str, needs: str, env: Any, o: Any) -> None:
    """SettingError where a run cannot have `o.learners` actor-learners."""
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
    """SettingError where several would have to share running statistics."""
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
    """What an actor-learner hands over: what it collected, if anything, and the gradient that it
    took, if any."""

    valid: Array  # [T]  how many of the environments' steps at each time count
    gradient: Array | None  # [size]
    metrics: dict[str, float]


class ActorLearners:
    """Stands where a loop's collector does: `collect` waits for the next gradient.

    A gradient waits where a step along it would make another one staler than `bound` updates: the
    deadlines of those that are under way are kept as by a processor that serves the most urgent
    first. With the tightest bound, one less than there are actor-learners, they take turns, and a
    run is the same each time; otherwise it depends on who is quicker.

    One that dies, raises or stands still is restarted as a `WorkerGroup` does it; that costs its
    unfinished episodes, and the gradient that it was taking. What it kept to replay its successor
    has on this machine, in shared memory; on a cluster that is lost, but for what a checkpoint has
    of it."""

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
        self._turns = 0  # how often something was handed over
        # the turn by which each has to hand over
        self._deadlines = [self.bound - count + 1 + i for i in range(count)]
        self._seen = [0] * count  # the updates in the weights that each has
        self._idle = list(range(count))
        self._arrived: list[tuple[int, JSONDict]] = []
        self._gradients: list[Array | None] = [None] * count  # the newest of each, [size]
        self._networks, each = algorithm.backend.networks, spec.conf.settings.envs
        self.replay: SharedReplay | None = None
        self.transport: Transport
        # The transport's slot of each, and the updates in the weights that are in a slot. On a
        # cluster all share one, since its object store has weights once for all of a version
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
        """What comes next, from whoever comes first. The one whose turn it was before goes on with
        the weights of now."""
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
        """Whether the others can still keep their deadlines, one after the other, if i has this
        turn."""
        others = sorted(d for j, d in enumerate(self._deadlines) if j != i)
        return all(self._turns + 1 + k <= d for k, d in enumerate(others))

    @property
    def _weights(self) -> dict[str, Weights]:
        return {role: network.read() for role, network in self._networks.items()}

    def _start(self, worker: Worker) -> WorkerHandle:
        """Starts one, for the first time or again."""
        i = worker.first // worker.count
        return self.transport.start(worker, *(self.replay.of(i) if self.replay else ()))

    def _go(self, worker: Worker) -> None:
        """Gives one the weights of now."""
        i = self.group.workers.index(worker)
        slot, self._seen[i] = self._slots[i], self.version
        if self._published.get(slot) != self.version:
            self._published[slot] = self.version
            self.transport.publish(slot, self._weights)
        calls = self.group.calls_for(worker)
        self.transport.request(worker, slot, [self.env_steps, self.version, calls], {})

    def _arrive(self) -> None:
        """Waits for one of those that are under way."""
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
        """As `Collector.state`; gradients that are being taken are waited for, and part of it."""
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
        """As `Collector.load_state`. ResumeError for a run with another number of
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
        """What each of them learns from, all of them at rest: the updates that it owes, and with
        `replay` what it keeps to replay."""
        if self.replay is not None:
            return self.replay.state(replay)
        if self.group.given_up:
            return [{"owed": 0} for _ in self.group.workers], {}
        return self.ask("learned", replay)

    def load_learned(self, each: list[JSONDict], arrays: dict[str, Array]) -> None:
        """Gives that back."""
        self._published = {}  # the weights are others
        if self.replay is None:
            self.tell("load_learned", each, arrays)
        else:
            self.replay.load_state(each, arrays)
            self.group.tell("load_learned", [(learned, {}) for learned in self.replay.learned])

    def ask(self, name: str, *arguments: object) -> tuple[list[JSONDict], dict[str, Array]]:
        """What each of them, none of which is under way, says to a question for data and arrays."""
        answers = [] if self.group.given_up else self.group.gather(name, *arguments)
        return [data for data, _ in answers], merge_arrays(answers)

    def tell(self, name: str, data: Sequence[object], arrays: dict[str, Array]) -> list[Any]:
        """Gives each of them what it said, or nothing where none said anything; their answers."""
        each = [(own, select(arrays, str(i))) for i, own in enumerate(data)]
        return self.group.tell(name, each) if data else []

    def make_calls(self, calls: Sequence[Any]) -> None:
        """See `Collector.make_calls`; in each learner before the next round that it begins."""
        if calls:
            self.environments.make_calls(calls)  # which finds out what cannot be called
        self.group.calls += calls

    def attribute(self, name: str) -> list[Any]:
        """See `Collector.attribute`; rounds under way are waited for."""
        return [x for values in self._after_calls("attribute", name) for x in values]

    def _after_calls(self, name: str, *arguments: object) -> list[Any]:
        """What each learner says, all of them at rest, after all calls."""
        while len(self._arrived) + len(self._idle) < len(self.group.workers):
            self._arrive()
        return self.group.gather_after_calls(name, *arguments)

    def request_stop(self) -> None:
        """See `WorkerGroup.request_stop`."""
        self.group.request_stop()

    def close(self) -> None:
        """Ends them all, and frees what this process's environments hold."""
        self.group.end()
        self.environments.close()


class CentralLearner(Learner):
    """Stands where a loop's learner does: makes the steps."""

    def __init__(self, algorithm: OnSequences, learners: ActorLearners) -> None:
        self.algorithm = algorithm
        self.learners = learners
        self.block = algorithm.settings.rollout
        self.updates = 0
        self._run = algorithm.backend.compile(self._step)

    def _step(self, b: Batch) -> Update:
        self.algorithm.backend.step(self.algorithm.optimizer, b.reward, b.settings["learning_rate"])
        self.algorithm.follow(b.settings)
        return Update({}, ())

    def learn(self, trajectory: Any, span: Span) -> dict[str, float]:
        """The metrics of the gradient's loss; none where there was no gradient."""
        if trajectory.gradient is None:
            return {}
        schedule = self.algorithm.schedule(
            Call(np.full(1, span.progress), span.begin, span.end, self.updates)
        )
        self.updates += self._run(
            Batch((), (), reward=trajectory.gradient[None], settings=schedule)
        ).applied
        return trajectory.metrics

    def state(self, replay: bool) -> tuple[JSONDict, dict[str, Array]]:
        each, arrays = self.learners.learned(replay)
        return {"updates": self.updates, "each": each}, arrays

    def load_state(self, data: JSONDict, arrays: dict[str, Array]) -> None:
        self.updates = data["updates"]
        self.learners.load_learned(data["each"], arrays)


class Asynchronous(Loop):
    """The loop of the process that owns the weights; it acts nowhere."""

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
        """Actor-learners are given the weights as they go on."""

    def _noise(self, begin: int) -> tuple[None, None]:
        return None, None
