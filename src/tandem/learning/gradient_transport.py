"""What the owner of weights and its actor-learners give one another: through memory in common, or
over a cluster."""

from __future__ import annotations

import json
from typing import Any, NamedTuple, Protocol

import numpy as np

from tandem.envs.vector import Environments
from tandem.learning.actor_learner import RayActorLearner, SharedMemoryActorLearner
from tandem.learning.config import Config
from tandem.learning.sequence_learner import buffer_for
from tandem.networks.plan import select
from tandem.parallel.env_factory import EnvFactory
from tandem.parallel.process import Process, WorkerHandle
from tandem.parallel.ray import Actors
from tandem.parallel.shared_memory import SharedArrays, shape_dtype
from tandem.parallel.worker_group import Worker, WorkerGroup, merge_arrays
from tandem.types import Array

Json = dict[str, Any]


class LearnerSpec(NamedTuple):
    """What actor-learners are spec of."""

    conf: Config
    env_factory: EnvFactory
    network: Any


class GradientTransport(Protocol):
    """Between the owner and actor-learner i of its group."""

    gradients: list[Array | None]  # [size]  the newest of each

    def restore(self, i: int, gradient: Array) -> None:
        """Puts one back that had come when a checkpoint was written."""

    def line(self, worker: Worker) -> WorkerHandle:
        """To one that begins, for the first time or anew."""

    def go(self, i: int, worker: Worker, begin: int, updates: int) -> None:
        """Gives it the weights of now, after so many environment steps and updates of all."""

    def came(self, i: int, answer: Any) -> Json:
        """What it says, JSON data; its gradient, if it spec one, is in `gradients`."""

    def state(self, group: WorkerGroup, replay: bool) -> tuple[list[Json], dict[str, Array]]:
        """Of what they learn from, all of them at rest: updates owed, and what is kept to
        replay."""

    def load_state(self, group: WorkerGroup, each: list[Json], arrays: dict[str, Array]) -> None:
        """Gives that back."""


class SharedMemoryGradients:
    """Through memory in common. What is kept to replay is in it, and so outlives a process that is
    lost."""

    def __init__(self, spec: LearnerSpec, algorithm: Any, environments: Environments) -> None:
        self._spec, self._networks, count = (
            spec,
            algorithm.backend.networks,
            int(spec.conf.options.learners),
        )
        weights = {
            f"{role}/{n}": shape_dtype(x)
            for role, net in self._networks.items()
            for n, x in net.read().items()
        }
        self._weights = [SharedArrays.create(weights) for _ in range(count)]
        self._memory = [
            SharedArrays.create({"gradient": ((algorithm.optimizer.size,), "<f4")})
            for _ in range(count)
        ]
        self.gradients: list[Array | None] = [memory["gradient"] for memory in self._memory]
        self.buffers = [
            buffer_for(algorithm, environments.observation, environments.action)
            for _ in range(count)
        ]
        self._kept = []
        for buffer in self.buffers:
            if buffer is not None:
                self._kept.append(
                    SharedArrays.create({name: shape_dtype(x) for name, x in buffer.arrays.items()})
                )
                self._kept[-1]["writing"][:] = -1
                buffer.live_in(dict(self._kept[-1]))
        self.learned: list[Json | None] = [
            None
        ] * count  # what each said last of what it learns from

    def restore(self, i: int, gradient: Array) -> None:
        self._memory[i]["gradient"][:] = gradient  # where those to come are looked for, too

    def line(self, worker: Worker) -> WorkerHandle:
        i = worker.first // worker.count
        handles = tuple(
            arrays.handle for arrays in (self._weights[i], self._memory[i], *self._kept[i : i + 1])
        )
        return Process(
            tuple(h.fd for h in handles),
            SharedMemoryActorLearner,
            *self._spec,
            worker.part,
            handles,
            self.learned[i],
        )

    def go(self, i: int, worker: Worker, begin: int, updates: int) -> None:
        for role, net in self._networks.items():
            net.copy_to(self._weights[i].under(role))
        worker.send_bytes(json.dumps([begin, updates]).encode())

    def came(self, i: int, answer: Any) -> Json:
        told: Json = json.loads(answer)
        self.learned[i] = told.pop("learned")
        return told

    def state(self, group: WorkerGroup, replay: bool) -> tuple[list[Json], dict[str, Array]]:
        each, arrays = [], dict[str, Array]()
        for i, (said, buffer) in enumerate(zip(self.learned, self.buffers, strict=True)):
            mine: Json = {"owed": said["owed"] if said else 0}
            if buffer is not None and replay and said is not None:
                buffer.take_over(said["left"])
                mine["buffer"], inner = buffer.state()
                arrays |= {f"{i}/{n}": x for n, x in inner.items()}
            each.append(mine)
        return each, arrays

    def load_state(self, group: WorkerGroup, each: list[Json], arrays: dict[str, Array]) -> None:
        self.learned = []
        for i, (mine, buffer) in enumerate(zip(each, self.buffers, strict=True)):
            if buffer is not None and "buffer" in mine:
                buffer.load_state(mine["buffer"], select(arrays, str(i)))
            self.learned.append(
                {"owed": mine["owed"], "left": None if buffer is None else buffer.left()}
            )
        group.tell("load_learned", [(mine,) for mine in self.learned])


class RayGradients:
    """Over a cluster: weights go out by its object store, once for all of a version; gradients come
    with answers. What is kept to replay lives where it was collected; what a lost one kept is lost,
    but for what a checkpoint has of it."""

    def __init__(self, spec: LearnerSpec, algorithm: Any) -> None:
        o = spec.conf.options
        count, self._networks = int(o.learners), algorithm.backend.networks
        self._actors = Actors(o.cluster, o.runner_cpus, count, o.worker_patience)
        self._spec = self._actors.put(spec)
        self._weights: tuple[int, Any] = (-1, None)  # of which number of updates, and where
        self.gradients: list[Array | None] = [None] * count

    def restore(self, i: int, gradient: Array) -> None:
        self.gradients[i] = gradient

    def line(self, worker: Worker) -> WorkerHandle:
        return self._actors.begin(worker, RayActorLearner.of, self._spec)

    def go(self, i: int, worker: Worker, begin: int, updates: int) -> None:
        if self._weights[0] != updates:
            self._weights = (
                updates,
                self._actors.put({role: net.read() for role, net in self._networks.items()}),
            )
        worker.ask("sent", begin, updates, self._weights[1])

    def came(self, i: int, answer: Any) -> Json:
        said: Json
        said, gradient = answer
        self.gradients[i] = (
            None if gradient is None else np.array(gradient)
        )  # what comes from the store is not to be written
        return said

    def state(self, group: WorkerGroup, replay: bool) -> tuple[list[Json], dict[str, Array]]:
        if group.given_up:
            return [{"owed": 0} for _ in group.workers], {}
        found = group.gather("learned", replay)
        return [mine for mine, _ in found], merge_arrays(found)

    def load_state(self, group: WorkerGroup, each: list[Json], arrays: dict[str, Array]) -> None:
        self._weights = (-1, None)
        group.tell("load_learned", [(mine, select(arrays, str(i))) for i, mine in enumerate(each)])


def gradient_transport(
    spec: LearnerSpec, algorithm: Any, environments: Environments
) -> GradientTransport:
    """As the options of the run say."""
    return (
        RayGradients(spec, algorithm)
        if spec.conf.options.cluster
        else SharedMemoryGradients(spec, algorithm, environments)
    )
