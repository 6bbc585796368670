"""One of several actor-learners (Mnih et al. 2016, arXiv:1602.01783, section 4), in its own
process: it collects data and computes gradients like a single-process run, and sends the gradients
to the process that owns the weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from tandem.backends.backend import RECORDER
from tandem.envs.vector import closed_on_error
from tandem.errors import NetworkError, NonFiniteError
from tandem.learning.build import beside, build
from tandem.learning.config import Config
from tandem.learning.learners import Span
from tandem.learning.loop import Loop
from tandem.learning.parallel.env_factory import EnvFactory
from tandem.learning.parallel.transport import Arrays, Weights, writable
from tandem.learning.seeds import Generators, derived
from tandem.learning.sequence_learner import SequenceLearner
from tandem.networks.plan import select
from tandem.networks.renorm import moves
from tandem.types import Array, JSONDict
from tandem.workers.shared_memory import Handle, SharedArrays


class LearnerSpec(NamedTuple):
    """The arguments of an actor-learner."""

    conf: Config
    env_factory: EnvFactory
    network: object


class ActorLearner(Loop):
    """Computes one gradient per round, in environments first to first + count of `part`.

    replay: shared memory for its replay buffer. learned: the last report about its learner by a
    lost predecessor."""

    learner: SequenceLearner

    def __init__(
        self,
        spec: LearnerSpec,
        part: tuple[int, int, int],
        replay: Handle | None = None,
        learned: JSONDict | None = None,
    ) -> None:
        conf, env_factory, network = spec
        environments = env_factory.make(*part)
        with closed_on_error(environments.close):
            generators = Generators(derived(conf.seed, f"actor-learner {part}"))
            algorithm = build(beside(conf), environments, generators, network, RECORDER)
            super().__init__(algorithm, algorithm.backend, environments, generators)
        self.close = environments.close
        self._span = Span(0, 0, self.steps)
        self._begin = 0  # total environment steps when the weights were received
        self._info: JSONDict = {}
        self._weights: Weights = {}
        self._gradient: dict[str, Array] = {}
        read = {role: net.read() for role, net in self.backend.networks.items()}
        self._seeds = {
            role: [n for n, x in weights.items() if x.dtype.kind in "iu"]
            for role, weights in read.items()
        }
        self._checked = False
        self._rounds = self._going()
        if replay is not None and self.learner.buffer is not None:
            self.learner.buffer.live_in(dict(SharedArrays.attach(replay)))
        if learned is not None:
            self.load_learned({**learned, "owed": 0}, {})

    def respond(
        self, message: tuple[int, int, list[Any]], weights: Weights, arrays: Arrays
    ) -> tuple[JSONDict, dict[str, Array]]:
        """Run one round. message: the total environment steps and updates so far, and calls to make
        in the environments; weights: the newest. Return data about the collected steps, and the
        next gradient, if any."""
        self._begin, self.learner.updates, calls = message
        self.collector.make_calls(calls)
        self._weights, self._gradient = writable(weights), {}
        for role, network in self.backend.networks.items():
            # dropout seeds differ between actor-learners
            own = network.read() if self._seeds[role] else {}
            network.write({**self._weights[role], **{n: own[n] for n in self._seeds[role]}})
        self._info = {"valid": [], "episodes": [], "metrics": {}, "made": False, "fault": None}
        try:
            metrics = next(self._rounds)
            if metrics:
                self._hand_over(metrics)
        except (NonFiniteError, NetworkError) as error:
            self._info["fault"] = [type(error).__name__, error.happened, error.expected, error.fix]
        buffer = self.learner.buffer
        left = None if buffer is None else buffer.left()
        return self._info | {
            "learned": {"owed": self.learner.pending, "left": left}
        }, self._gradient

    def _hand_over(self, metrics: dict[str, float]) -> None:
        self._gradient = {"gradient": self.algorithm.optimizer.recorded}
        self._info |= {"made": True, "metrics": metrics}
        if self._checked:
            return
        self._checked = True
        for network in self.algorithm.optimizer.networks:
            seeds, before = self._seeds[network.name], self._weights[network.name]
            moved = any(
                not np.array_equal(x, before[n])
                for n, x in network.read().items()
                # names in a plan show which layers normalize observations, which is allowed
                if n not in seeds and (network.plan is None or moves(n))
            )
            if moved:
                raise NetworkError(
                    f"the network {network.name!r} updates weights in the forward pass, like batch "
                    "normalization.",
                    "weights that only gradients change, with several actor-learners",
                    "use layer normalization, for example, or one learner only (learners=1, "
                    "num_parallel=1).",
                )

    def _going(self) -> Iterator[dict[str, float] | None]:
        """Yield the metrics of each update; an empty dict or None if no update was made."""
        # continue with the block that was being learned from when the run was saved
        yield from self.learner.replays(self._span)
        while True:
            self._sync()
            actor, noise = self._noise(self._begin)
            trajectory = self.collector.collect(self.learner.block, actor, noise)
            assert trajectory is not None
            valid = trajectory.valid.sum(1)
            self._info |= {"valid": valid.tolist(), "episodes": self.collector.episodes}
            self._span = Span(self._begin, self._begin + int(valid.sum()), self.steps)
            rounds = self.learner.rounds(trajectory, self._span)
            if (metrics := next(rounds, None)) is None:
                yield None
                continue
            yield metrics
            yield from rounds

    def attribute(self, name: str, calls: list[Any]) -> list[Any]:
        """Return the values of an attribute of its environments, after these calls."""
        self.collector.make_calls(calls)
        return list(self.collector.attribute(name))

    def collected(self, calls: list[Any]) -> tuple[JSONDict, dict[str, Array]]:
        """Return the state of its environments, after these calls, and of its randomness."""
        self.collector.make_calls(calls)
        data, arrays = self.collector.state()
        seeds = {f"seeds/{n}": x for n, x in self.backend.state().items() if x.dtype.kind in "iu"}
        return {
            "collector": data,
            "generators": self.generators.state(),
            "span": self._span,
        }, arrays | seeds

    def load_collected(self, data: JSONDict, arrays: dict[str, Array]) -> str:
        """Restore this state; return the reason if new episodes start: `Collector.restarted`."""
        self.collector.load_state(
            data["collector"], {n: x for n, x in arrays.items() if not n.startswith("seeds/")}
        )
        self.backend.load_state(self.backend.state() | select(arrays, "seeds"))
        self.generators.load_state(data["generators"])
        self._span, self._rounds = Span(*data["span"]), self._going()
        return str(self.collector.restarted)

    def learned(self, replay: bool) -> tuple[JSONDict, dict[str, Array]]:
        """Return its learner's state: pending updates, and with `replay` the replay buffer."""
        buffer, pending = self.learner.buffer, {"owed": self.learner.pending}
        if buffer is None or not replay:
            return pending, {}
        data, arrays = buffer.state()
        return pending | {"buffer": data}, arrays

    def load_learned(self, learned: JSONDict, arrays: dict[str, Array]) -> None:
        """Restore this state, or continue with the replay buffer in shared memory."""
        buffer, self.learner.pending = self.learner.buffer, learned["owed"]
        if buffer is not None and "left" in learned:
            buffer.take_over(learned["left"])
        elif buffer is not None and "buffer" in learned:
            buffer.load_state(learned["buffer"], arrays)
