"""Learning by several actor-learners at once: each takes gradients at the weights that it was
given, and this process, which owns the weights, makes the steps along them in the order in which
they come (Mnih et al. 2016, arXiv:1602.01783, section 4)."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from tandem.algorithms.base import Call
from tandem.collect.trajectories import Ended, read_ended
from tandem.envs.vector import Environments
from tandem.errors import NetworkError, NonFiniteError, ResumeError, SettingError
from tandem.learning.gradient_transport import LearnerSpec, gradient_transport
from tandem.learning.learners import Span
from tandem.learning.loop import Loop
from tandem.learning.seeds import Generators
from tandem.networks.plan import select
from tandem.parallel.env_factory import check_can_travel
from tandem.parallel.transport import number_episodes
from tandem.parallel.worker_group import Worker, WorkerGroup, merge_arrays
from tandem.types import Array, Batch, Update


def refuse(algorithm: str, needs: str, env: Any, o: Any) -> None:
    """SettingError where a run cannot have `o.learners` actor-learners."""
    if o.learners == 1:
        return
    if needs != "sequences":
        raise SettingError(
            f"learners={o.learners} with {algorithm}, whose updates are not for several to take "
            "part in.",
            "a3c, acer, impala or nstep_q",
            "choose one of those, or workers=N, which collect while this process learns.",
        )
    for what in ("workers", "runners"):
        if getattr(o, what):
            raise SettingError(
                f"learners={o.learners} and {what}={getattr(o, what)}.",
                "one or the other: learners collect by themselves",
                f"leave {what} out.",
            )
    if 0 <= o.staleness < o.learners - 1:
        raise SettingError(
            f"staleness={o.staleness} with {o.learners} learners.",
            f"at least {o.learners - 1}: that many updates are made while each of the others has "
            "its turn",
            f"give {o.learners - 1} or more.",
        )
    check_can_travel(env, f"learners={o.learners}")


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

    One that dies, raises or stands still is started anew as a `WorkerGroup` does it; that costs
    its unfinished episodes, and the gradient that it was taking; what becomes of what it kept to
    replay, see `GradientTransport`."""

    def __init__(self, spec: LearnerSpec, algorithm: Any, environments: Environments) -> None:
        o, count = spec.conf.options, int(spec.conf.options.learners)
        self.environments, self.n = environments, spec.env_factory.n
        self.bound = o.staleness if o.staleness >= 0 else 4 * count
        self.episodes: list[Ended] = []
        self.broken: list[int] = []
        self.env_steps = self.version = 0
        self.lag: int | None = None
        self.seconds = {"environment": 0.0, "acting": 0.0}
        self._turns = 0  # how often something was handed over
        self._deadlines = [
            self.bound - count + 1 + i for i in range(count)
        ]  # the turn by which each has to hand over
        self._seen = [0] * count  # the updates in the weights that each has
        self._idle = list(range(count))
        self._arrived: list[tuple[int, dict[str, Any]]] = []
        self.transport = gradient_transport(spec, algorithm, environments)
        each = spec.conf.settings.envs
        shares = [(i * each, each) for i in range(count)]
        self.group = WorkerGroup(
            environments.name, shares, o.worker_patience, o.worker_restarts, self.transport.line
        )

    @property
    def begun_steps(self) -> int:
        return self.env_steps

    def collect(self, steps: int, actor: Any, noise: Any = None) -> LearnerResult:
        """What comes next, from whoever comes first. The one whose turn it was before goes on with
        the weights of now."""
        began = perf_counter()
        for i in self._idle:
            self._go(self.group.workers[i])
        self._idle = []
        while (
            found := next((k for k, (i, _) in enumerate(self._arrived) if self._may(i)), None)
        ) is None:
            self._arrive()
        i, said = self._arrived.pop(found)
        self._idle, self._turns = [i], self._turns + 1
        self._deadlines[i] = self._turns + self.bound
        self.seconds["environment"] += perf_counter() - began
        if said["fault"]:
            kind, *parts = said["fault"]
            raise {"NonFiniteError": NonFiniteError, "NetworkError": NetworkError}[kind](*parts)
        self.episodes = number_episodes(read_ended(said["episodes"]), self.group.workers[i])
        self.lag = self.version - self._seen[i]
        valid = np.array(said["valid"], np.int64)
        self.env_steps += int(valid.sum())
        return LearnerResult(
            valid, self.transport.gradients[i] if said["made"] else None, said["metrics"]
        )

    def _may(self, i: int) -> bool:
        """Whether the others can still keep their deadlines, one after the other, if i has this
        turn."""
        others = sorted(d for j, d in enumerate(self._deadlines) if j != i)
        return all(self._turns + 1 + k <= d for k, d in enumerate(others))

    def _go(self, worker: Worker) -> None:
        """The weights of now, and off."""
        i = self.group.workers.index(worker)
        self._seen[i] = self.version
        self.transport.go(i, worker, self.env_steps, self.version)

    def _arrive(self) -> None:
        """Waits for one of those that are under way."""
        here = {*self._idle, *(i for i, _ in self._arrived)}
        i, answer = self.group.first(
            [i for i in range(len(self.group.workers)) if i not in here], self._go
        )
        self._arrived.append((i, self.transport.came(i, answer)))

    # Saving

    def state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """As `Collector.state`; gradients that are being taken are waited for, and part of it."""
        data = {
            "env_steps": self.env_steps,
            "seconds": dict(self.seconds),
            "restarts": 0,
            "turns": self._turns,
        }
        workers = self.group.workers
        if self.group.given_up:
            return data | {"begun": False, "lives": [w.generation + 1 for w in workers]}, {}
        while len(self._arrived) + len(self._idle) < len(workers):
            self._arrive()
        parts, arrays = self.ask("collected")
        gradients = {i: self.transport.gradients[i] for i, said in self._arrived if said["made"]}
        arrays |= {f"gradient/{i}": np.array(x) for i, x in gradients.items()}
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

    def load_state(self, data: dict[str, Any], arrays: dict[str, Array]) -> None:
        """As `Collector.load_state`. ResumeError for a run with another number of
        actor-learners."""
        workers = self.group.workers
        if len(data.get("lives", [])) != len(workers):
            raise ResumeError(
                f"the run was saved with {len(data.get('lives', []))} learners; here are "
                f"{len(workers)}.",
                "as many as it began with, since they hold its environments",
                "resume with the settings of the run.",
            )
        self.env_steps, self.seconds, self._turns = (
            data["env_steps"],
            dict(data["seconds"]),
            data["turns"],
        )
        self.group.restarts = data["restarts"]
        self.group.live(data["lives"])
        self.tell("load_collected", data.get("parts", []), arrays)
        if not data["begun"]:
            self._deadlines = [self._turns + d for d in self._deadlines]
            return
        self.version, self._idle = data["version"], list(data["idle"])
        self._seen, self._deadlines = list(data["seen"]), list(data["deadlines"])
        self._arrived = [(i, said) for i, said in data["arrived"]]
        for i, said in self._arrived:
            if said["made"]:
                self.transport.restore(i, arrays[f"gradient/{i}"])

    def ask(self, name: str, *arguments: Any) -> tuple[list[Any], dict[str, Array]]:
        """What each of them, none of which is under way, says to a question for data and arrays."""
        found = [] if self.group.given_up else self.group.gather(name, *arguments)
        return [data for data, _ in found], merge_arrays(found)

    def tell(self, name: str, data: list[Any], arrays: dict[str, Array]) -> None:
        """Gives each of them what it said, or nothing where none said anything."""
        if data:
            self.group.tell(name, [(mine, select(arrays, str(i))) for i, mine in enumerate(data)])

    def request_stop(self) -> None:
        """See `WorkerGroup.request_stop`."""
        self.group.request_stop()

    def close(self) -> None:
        """Ends them all, and frees what this process's environments hold."""
        self.group.end()
        self.environments.close()


class CentralLearner:
    """Stands where a loop's learner does: makes the steps."""

    def __init__(self, algorithm: Any, learners: ActorLearners) -> None:
        self.algorithm, self.learners, self.block, self.updates = (
            algorithm,
            learners,
            algorithm.settings.rollout,
            0,
        )
        self._run = algorithm.backend.compile(self._step)

    def _step(self, b: Batch) -> Update:
        self.algorithm.backend.step(self.algorithm.optimizer, b.reward, b.settings["learning_rate"])
        self.algorithm.follow(b.settings)
        return Update({}, ())

    def learn(self, trajectory: Any, span: Span) -> dict[str, float]:
        """The metrics of the gradient's loss; none where there was no gradient."""
        handed: LearnerResult = trajectory
        if handed.gradient is None:
            return {}
        schedule = self.algorithm.schedule(
            Call(np.full(1, span.progress), span.begin, span.end, self.updates)
        )
        self.updates += self._run(
            Batch((), (), reward=handed.gradient[None], settings=schedule)
        ).applied
        return handed.metrics

    def is_warmup(self, env_steps: int) -> bool:
        return False

    def break_off(self, envs: Sequence[int]) -> None:
        """Actor-learners know by themselves."""

    def state(self, replay: bool) -> tuple[dict[str, Any], dict[str, Array]]:
        each, arrays = self.learners.transport.state(self.learners.group, replay)
        return {"updates": self.updates, "each": each}, arrays

    def load_state(self, data: dict[str, Any], arrays: dict[str, Array]) -> None:
        self.updates = data["updates"]
        self.learners.transport.load_state(self.learners.group, data["each"], arrays)


class Asynchronous(Loop):
    """The loop of the process that owns the weights; it acts nowhere."""

    def __init__(
        self,
        learners: ActorLearners,
        algorithm: Any,
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

    def _noise(self, begin: int) -> tuple[Any, Any]:
        return None, None
