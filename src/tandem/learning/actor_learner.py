"""One of several actor-learners (Mnih et al. 2016, arXiv:1602.01783, section 4), in a process of
its own: it collects and takes gradients as a run of one process does, and leaves the steps along
them to the owner of the weights."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tandem.errors import NetworkError, NonFiniteError
from tandem.learning.build import beside, build
from tandem.learning.config import Config
from tandem.learning.learners import Span
from tandem.learning.loop import Loop
from tandem.learning.seeds import Generators, derived
from tandem.learning.sequence_learner import SequenceLearner
from tandem.networks.plan import Weights, select
from tandem.parallel.env_factory import EnvFactory
from tandem.parallel.shared_memory import Handle, SharedArrays
from tandem.types import Array, tree_map


class ActorLearner(Loop):
    """Goes on by one update in each round."""

    learner: SequenceLearner

    def __init__(
        self, conf: Config, env_factory: EnvFactory, network: Any, part: tuple[int, int, int]
    ) -> None:
        environments = env_factory.make(*part)
        generators = Generators(derived(conf.seed, f"actor-learner {part}"))
        algorithm = build(beside(conf), environments, generators, network, gradients_only=True)
        super().__init__(algorithm, algorithm.backend, environments, generators)
        self._span = Span(0, 0, self.steps)
        self._begin = 0  # environment steps of all when the weights were given
        self._said: dict[str, Any] = {}
        self._weights: Mapping[str, Weights] = {}
        self._gradient: Array | None = None
        read = {role: net.read() for role, net in self.backend.networks.items()}
        self._seeds = {
            role: [n for n, x in given.items() if x.dtype.kind in "iu"]
            for role, given in read.items()
        }
        self._checked = False
        self._rounds = self._going()

    def round(
        self, begin: int, updates: int, weights: Mapping[str, Weights]
    ) -> tuple[dict[str, Any], Array | None]:
        """Takes the newest weights, after so many environment steps and updates of all; says what
        was collected for the next gradient, and gives it, if there is one."""
        self._begin, self.learner.updates, self._weights, self._gradient = (
            begin,
            updates,
            weights,
            None,
        )
        for role, network in self.backend.networks.items():
            own = (
                network.read() if self._seeds[role] else {}
            )  # of dropout: they differ from one actor-learner to the next
            network.write({**weights[role], **{n: own[n] for n in self._seeds[role]}})
        self._said = {"valid": [], "episodes": [], "metrics": {}, "made": False, "fault": None}
        try:
            metrics = next(self._rounds)
            if metrics is not None:
                self._hand_over(metrics)
        except (NonFiniteError, NetworkError) as error:
            self._said["fault"] = [type(error).__name__, error.happened, error.expected, error.fix]
        return self._said, self._gradient

    def _hand_over(self, metrics: dict[str, float]) -> None:
        self._gradient = self.backend.recorded_gradient(self.algorithm.optimizer)
        self._said |= {"made": True, "metrics": metrics}
        if self._checked:
            return
        self._checked = True
        for network in self.algorithm.optimizer.networks:
            given = self._weights[network.name]
            moved = {n for n, x in network.read().items() if not np.array_equal(x, given[n])} - {
                *self._seeds[network.name]
            }
            if network.plan is None and moved:
                raise NetworkError(
                    f"the network {network.name!r} moves weights of its own in a forward pass, as "
                    "batch normalisation does.",
                    "networks that only gradients move, where several actor-learners take them",
                    "use layer normalisation, say, or one learner only (learners=1, "
                    "num_parallel=1).",
                )

    def _going(self) -> Iterator[dict[str, float] | None]:
        """The metrics of one update after the other; None for a block that brings none."""
        yield from self.learner.replays(
            self._span
        )  # of the block that was learned from when the run was saved
        while True:
            self._sync()
            actor, noise = self._noise(self._begin)
            trajectory = self.collector.collect(self.learner.block, actor, noise)
            assert trajectory is not None
            valid = trajectory.valid.sum(1)
            self._said |= {"valid": valid.tolist(), "episodes": self.collector.episodes}
            self._span = Span(self._begin, self._begin + int(valid.sum()), self.steps)
            rounds = self.learner.rounds(trajectory, self._span)
            if (metrics := next(rounds, None)) is None:
                yield None
                continue
            yield metrics
            yield from rounds

    def collected(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Where its environments and its randomness are."""
        data, arrays = self.collector.state()
        seeds = {f"seeds/{n}": x for n, x in self.backend.state().items() if x.dtype.kind in "iu"}
        return {
            "collector": data,
            "generators": self.generators.state(),
            "span": self._span,
        }, arrays | seeds

    def load_collected(self, data: dict[str, Any], arrays: dict[str, Array]) -> None:
        """Puts that back."""
        self.collector.load_state(
            data["collector"], {n: x for n, x in arrays.items() if not n.startswith("seeds/")}
        )
        self.backend.load_state(self.backend.state() | select(arrays, "seeds"))
        self.generators.load_state(data["generators"])
        self._span, self._rounds = Span(*data["span"]), self._going()


class SharedMemoryActorLearner(ActorLearner):
    """In a process. `handles` are of memory shared with the owner: all weights, a gradient, and
    what is kept to replay, which outlives this process: `learned` is what one that was lost had
    said of it."""

    def __init__(
        self,
        conf: Config,
        env_factory: EnvFactory,
        network: Any,
        part: tuple[int, int, int],
        handles: tuple[Handle, ...],
        learned: dict[str, Any] | None,
    ) -> None:
        super().__init__(conf, env_factory, network, part)
        self.weights, self.gradient, *kept = (SharedArrays.attach(handle) for handle in handles)
        if self.learner.buffer is not None:
            self.learner.buffer.live_in(dict(kept[0]))
        if learned is not None:
            self.load_learned({**learned, "owed": 0})

    def on_bytes(self, told: bytes) -> bytes:
        """A round, with the weights and the gradient in memory."""
        begin, updates = json.loads(told)
        said, gradient = self.round(
            begin, updates, {role: self.weights.under(role) for role in self.backend.networks}
        )
        if gradient is not None:
            self.gradient["gradient"][:] = gradient
        buffer = self.learner.buffer
        learned = {"owed": self.learner.owed, "left": None if buffer is None else buffer.left()}
        return json.dumps(said | {"learned": learned}).encode()

    def load_learned(self, learned: dict[str, Any]) -> None:
        """Goes on with what was learned from."""
        self.learner.owed = learned["owed"]
        if self.learner.buffer is not None:
            self.learner.buffer.take_over(learned["left"])


class RayActorLearner(ActorLearner):
    """On a cluster, where arrays come and go with questions and answers."""

    @classmethod
    def of(cls, spec: tuple[Config, EnvFactory, Any], part: tuple[int, int, int]) -> Any:
        """Of what all of them have in common, and its own part of the environments."""
        return cls(*spec, part)

    def sent(
        self, begin: int, updates: int, weights: Mapping[str, Weights]
    ) -> tuple[dict[str, Any], Array | None]:
        """A round, with weights out of the object store, where they are not to be written."""
        return self.round(begin, updates, tree_map(np.array, weights))

    def learned(self, replay: bool) -> tuple[dict[str, Any], dict[str, Array]]:
        """What it learns from: updates that it owes, and what it keeps to replay."""
        buffer, mine = self.learner.buffer, {"owed": self.learner.owed}
        if buffer is None or not replay:
            return mine, {}
        data, arrays = buffer.state()
        return mine | {"buffer": data}, arrays

    def load_learned(self, learned: dict[str, Any], arrays: dict[str, Array]) -> None:
        """Goes on with that."""
        self.learner.owed = learned["owed"]
        if self.learner.buffer is not None and "buffer" in learned:
            self.learner.buffer.load_state(learned["buffer"], arrays)
