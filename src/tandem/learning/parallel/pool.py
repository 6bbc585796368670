"""Worker processes that each step a share of the environments, as one collector, synchronously or
ahead of the learner."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from tandem.errors import ResumeError, SettingError
from tandem.learning.collect.actor import PolicyActor, Portable, RandomActor
from tandem.learning.collect.collector import Collector
from tandem.learning.collect.trajectories import BlockInfo, EndedEpisode, join_environments, unpack
from tandem.learning.parallel.env_factory import EnvFactory, check_can_travel, divide
from tandem.learning.parallel.transport import (
    Arrays,
    RayTransport,
    SharedMemoryTransport,
    Transport,
    Weights,
)
from tandem.learning.parallel.worker_collector import CollectorSpec, WorkerCollector, block_shapes
from tandem.learning.parallel.worker_group import Worker, WorkerGroup, merge_arrays
from tandem.networks.plan import Twin, select
from tandem.settings import nearest_multiple
from tandem.spaces import MASK, ActionMode, Spec
from tandem.types import Array, JSONDict, Trajectory, Tree, leaves, tree_map
from tandem.workers.shared_memory import ShapeDtype, shape_dtype


def blocks_ahead(ahead: int, on_policy: bool) -> int:
    """Resolve the option `ahead` of a run: -1 means 1 for off-policy algorithms, otherwise 0."""
    return int(not on_policy) if ahead < 0 else ahead


@dataclass(frozen=True)
class WorkerOptions:
    """Options of workers."""

    workers: int
    # blocks collected while the learner uses earlier ones; 0: synchronous
    ahead: int = 0
    patience: float = 60.0  # maximum time per block, in seconds
    restarts: int = 3  # maximum number per run
    cluster: str = ""  # address of the cluster; "": processes on this machine
    cpus: float = 1.0  # cluster CPUs per worker

    @classmethod
    def of(
        cls, env_factory: EnvFactory, o: Any, on_policy: bool, train_every: int = 0
    ) -> WorkerOptions:
        """Create from the options of a run; ahead=-1 means 1 for off-policy algorithms.
        train_every: of algorithms that have it, a multiple of the number of environments. Raises
        SettingError if the environments cannot be divided among the workers (and, if synchronous,
        this process), or among the runners."""
        what, workers = ("runners", o.runners) if o.runners else ("workers", o.workers)
        if o.runners and o.workers:
            raise SettingError(
                f"runners={o.runners} and workers={o.workers}.",
                "only one of them: runners on a cluster, or workers on this machine",
                "leave one out.",
            )
        if workers and o.ahead > 0 and on_policy:
            raise SettingError(
                f"ahead={o.ahead} is not supported with an on-policy algorithm.",
                "0: each block waits for the update from the previous one",
                "leave ahead out.",
            )
        ahead = blocks_ahead(o.ahead, on_policy) if workers else 0
        cluster = (o.cluster or "auto") if o.runners else ""
        patience, restarts = o.worker_patience, o.worker_restarts
        options = cls(workers, ahead, patience, restarts, cluster, o.runner_cpus)
        if workers:  # checked before their number, since one object cannot be multiplied
            check_can_travel(env_factory.env, f"{what}={workers}")
        most = env_factory.n if ahead or cluster else env_factory.n - 1
        if not 0 <= workers <= most:
            also = "" if most == env_factory.n else ", and one for this process"
            n = workers + env_factory.n - most
            give = f"envs={n}"
            if train_every % n:  # otherwise the advice would cause another error
                give += f", and train_every={nearest_multiple(n, train_every)} if you give it"
            raise SettingError(
                f"{what}={workers} for {env_factory.n} environments.",
                f"at least one environment for each {what[:-1]}{also}",
                f"give more environments ({give}), or at most {most} {what}.",
            )
        return options

    @property
    def alone(self) -> bool:
        """True if workers step all environments, and this process none."""
        return bool(self.ahead or self.cluster)

    def parts(self, n: int) -> list[tuple[int, int]]:
        """Return (first, count) of the environments of this process and of each worker. This
        process has none if workers are ahead or on a cluster."""
        return [(0, 0), *divide(n, self.workers)] if self.alone else divide(n, self.workers + 1)


@dataclass
class PendingBlock:
    """A requested block and its results so far."""

    slot: int  # slot of the transport
    steps: int
    actor: int  # index of the actor: 0 for the policy, 1 for random actions
    version: int  # of the weights, in updates
    noise: Tree  # [steps, N, ...]
    results: list[tuple[BlockInfo, Arrays] | None]  # per worker
    broken: list[int]  # environments whose episodes were lost before it
    calls: int = 0  # number of calls made on the environments before it


class WorkerPool:
    """Collector, with the interface of `Collector`, that combines the workers' environments in one
    block.

    In synchronous mode, `own` steps the first environments in this process. Seeds and noise do not
    depend on the number of workers, so a run equals that of one process, except for rounding in
    matrix products with different numbers of rows. With `options.ahead` blocks, `own` steps none,
    and a block is returned that many calls after its request, collected with the weights of that
    time. Workers collect while this process learns, at a fixed lag, so runs are reproducible too.

    A worker that dies, raises or does not respond is restarted, up to `options.restarts` times in
    total; then WorkerError is raised. The unfinished episodes of its environments are lost, and the
    environments are in `broken` after the `collect` that returns their first new steps."""

    def __init__(
        self,
        env_factory: EnvFactory,
        options: WorkerOptions,
        own: Collector,
        actors: tuple[PolicyActor, RandomActor],
        action_mode: ActionMode,
        noises: tuple[Tree, Tree],
    ) -> None:
        """noises: examples of each actor's noise for a block, [steps, N, ...]."""
        self.options, self.own, self.actors, self.n = options, own, actors, env_factory.n
        self.environments, self.seconds = own.environments, own.seconds
        self.episodes: list[EndedEpisode] = []
        self.broken: list[int] = []
        self.env_steps = 0
        self.restarted = ""  # see `Collector`
        self.version = 0  # updates made so far
        # updates that the last block's weights lacked, if workers are ahead
        self.lag: int | None = None
        # environments that were restarted without a pending request
        self._broken_later: list[int] = []
        # a block was interrupted, so the workers' parts of it are useless
        self._torn = False
        self._pending: deque[PendingBlock] = deque()
        self._slot, self._slots = 0, options.ahead + 1
        self._obs, self._state = blank(own.environments.observation), actors[0].initial_state(1)
        self._noise_names = _array_names(noises[0], 0), _array_names(noises[1], 1)
        shares = options.parts(env_factory.n)[1:]
        spec = CollectorSpec(env_factory, own.gamma, action_mode, actors, self._noise_names)
        if options.cluster:
            self.transport: Transport = RayTransport(
                WorkerCollector,
                spec,
                options.cluster,
                options.cpus,
                len(shares),
                options.patience,
            )
        else:
            shapes = {
                first: dict.fromkeys(range(self._slots), self._shapes(count, noises))
                for first, count in shares
            }
            self.transport = SharedMemoryTransport(WorkerCollector, spec, self._weights, shapes)
        self.group = WorkerGroup(
            own.environments.name, shares, options.patience, options.restarts, self.transport.start
        )

    @property
    def begun_steps(self) -> int:
        """Number of environment steps collected or requested."""
        return self.env_steps + sum(r.steps * self.n for r in self._pending)

    def collect(self, steps: int, actor: Any, noise: Tree) -> Trajectory | None:
        """Request the next `steps` steps of every environment; see `Collector.collect`. Return None
        while no block is due."""
        if self._torn:
            self._begin_anew()
        block = PendingBlock(
            self._slot,
            steps,
            self.actors.index(actor),
            self.version,
            noise,
            [None] * len(self.group.workers),
            self._broken_later,
            len(self.group.calls),
        )
        self._slot, self._broken_later = (self._slot + 1) % self._slots, []
        self.transport.publish(block.slot, self._weights)
        for worker in self.group.workers:
            self._request(worker, block)
        self._pending.append(block)
        self.episodes, self.broken = [], []
        parts: list[Trajectory] = []
        firsts: list[int] = []
        if not self.options.alone:
            own_noise = tree_map(lambda x: x[:, : self.own.n], noise)
            try:
                parts, firsts = [self.own.collect(steps, actor, own_noise)], [0]
            except BaseException:
                self._torn = True
                raise
            self.episodes = list(self.own.episodes)
        elif len(self._pending) <= self.options.ahead:
            return None
        began = perf_counter()
        self._settle(block := self._pending[0])
        self._pending.popleft()
        for worker, result in zip(self.group.workers, block.results, strict=True):
            assert result is not None
            info, arrays = result
            parts.append(unpack(arrays, info, self._obs, self._state))
            firsts.append(worker.first)
            self.episodes += worker.numbered(info.episodes)
        self.seconds["environment"] += perf_counter() - began
        self.episodes.sort(key=lambda e: (e.t, e.episode.env))
        self.broken = block.broken if self.options.alone else [*self.own.broken, *block.broken]
        self.lag = self.version - block.version if self.options.ahead else None
        trajectory = join_environments(parts, firsts)
        self.env_steps += int(np.count_nonzero(trajectory.valid))
        return trajectory

    def state(self) -> tuple[JSONDict, dict[str, Array]]:
        """Return the state as `Collector.state` does, after waiting for requested blocks, which it
        includes. After a worker is permanently lost, it contains no episodes, and all restart."""
        data: JSONDict = {
            "env_steps": self.env_steps,
            "seconds": dict(self.seconds),
            "restarts": 0,
            "pending": [],
        }
        workers = self.group.workers
        if self.group.given_up or self._torn:
            lives = [w.generation + 1 for w in workers]
            return data | {"begun": False, "lives": lives} | self.own.after(), {}
        states = [self.own.state(), *self._after_calls("state")]
        arrays = merge_arrays(states)
        for k, block in enumerate(self._pending):
            results = [result for result in block.results if result is not None]
            infos = [info for info, _ in results]
            data["pending"].append([block.steps, block.actor, block.version, infos, block.broken])
            for i, (_, inner) in enumerate(results):
                arrays |= {f"pending/{k}/{i}/{n}": np.array(x) for n, x in inner.items()}
        begun = any(inner["begun"] for inner, _ in states)
        if self.group.calls:
            data["calls"] = [*self.group.calls]
        data |= {
            "begun": begun,
            "parts": [inner for inner, _ in states],
            "lives": [w.generation for w in workers],
        }
        return data | {"restarts": self.group.restarts, "version": self.version}, arrays

    def load_state(self, data: JSONDict, arrays: dict[str, Array]) -> None:
        """Resume as `Collector.load_state` does. Raises ResumeError for a run with a different
        number of workers."""
        workers = self.group.workers
        there, pending = len(data.get("lives", [])), len(data["pending"])
        if there != len(workers) or pending > self.options.ahead:
            what = "runners" if self.options.cluster else "workers"
            raise ResumeError(
                f"the run was saved with {there} {what} and {pending} blocks ahead; this run has "
                f"{len(workers)}, up to {self.options.ahead} ahead.",
                "the original numbers, since the processes hold its environments",
                f"give {what}={there}, and ahead={pending} or more.",
            )
        self.env_steps = data["env_steps"]
        self.group.restarts = data["restarts"]
        self.version = data.get("version", 0)
        inner = [select(arrays, str(i)) for i in range(len(workers) + 1)]
        states = data.get("parts", [{**data, "begun": False}])
        self.own.load_state(states[0], inner[0])
        self.group.live(data["lives"])
        self.group.calls = list(data.get("calls", []))
        self.restarted = self.own.restarted
        if len(states) > 1:
            for worker in workers:
                worker.called = len(self.group.calls)
            reasons = self.group.tell("load_state", zip(states[1:], inner[1:], strict=True))
            for worker, why in zip(self.group.workers, reasons, strict=True):
                self.restarted = self.restarted or why
                self._broken_later += worker.environments if why else []
        self._pending.clear()
        for k, (steps, actor, version, infos, broken) in enumerate(data["pending"]):
            results: list[tuple[BlockInfo, Arrays] | None] = [
                (BlockInfo.read(info), select(arrays, f"pending/{k}/{i}"))
                for i, info in enumerate(infos)
            ]
            self._pending.append(PendingBlock(k, steps, actor, version, None, results, broken))
        self._slot = len(data["pending"])

    def make_calls(self, calls: Sequence[Any]) -> None:
        """See `Collector.make_calls`. Calls are made at once in this process, and before the next
        requested block in workers."""
        self.own.make_calls(calls)  # raises for invalid calls, even before any episodes
        self.group.calls += calls

    def attribute(self, name: str) -> list[Any]:
        """See `Collector.attribute`. Waits for requested blocks."""
        own = [] if self.options.alone else self.own.attribute(name)
        return sum(self._after_calls("attribute", name), own)

    def request_stop(self) -> None:
        """See `WorkerGroup.request_stop`."""
        self.group.request_stop()

    def close(self) -> None:
        """Stop all workers and release the resources of this process's environments."""
        self.group.end()
        self.own.close()

    # Workers

    def _request(self, worker: Worker, block: PendingBlock) -> None:
        """Request a worker's part of a block."""
        noise = leaves(tree_map(lambda x: x[:, worker.columns], block.noise))
        arrays = dict(zip(leaves(self._noise_names[block.actor]), noise, strict=True))
        calls = self.group.calls_for(worker, block.calls)
        self.transport.request(worker, block.slot, [block.steps, block.actor, calls], arrays)

    def _begin_anew(self) -> None:
        """Restart all workers, and discard pending blocks."""
        self._torn = False
        self._pending.clear()
        for i, worker in enumerate(self.group.workers):
            self.group.restart(i, worker.generation + 1)
            self._broken_later += [e for e in worker.environments if e not in self._broken_later]

    def _settle(self, block: PendingBlock) -> None:
        """Wait for the missing parts of a block."""
        for i, result in enumerate(block.results):
            if result is None:
                answer = self.group.answer(i, self._again)
                info, arrays = self.transport.receive(self.group.workers[i], block.slot, answer)
                block.results[i] = BlockInfo.read(info), arrays

    def _again(self, worker: Worker) -> None:
        """Repeat all unanswered requests to a restarted worker."""
        i = self.group.workers.index(worker)
        owed = [block for block in self._pending if block.results[i] is None]
        broken = owed[0].broken if owed else self._broken_later
        broken += [e for e in worker.environments if e not in broken]
        for block in owed:
            self._request(worker, block)

    def _after_calls(self, name: str, *arguments: Any) -> list[Any]:
        """Call a method of each worker after all requested blocks and all calls, and return the
        results."""
        for block in self._pending:
            self._settle(block)
        return self.group.gather_after_calls(name, *arguments, again=self._again)

    @property
    def _weights(self) -> Weights:
        """Current weights of the acting networks, all of which can be sent to other processes."""
        return {
            role: n.weights
            for role, n in self.actors[0].networks.items()
            if isinstance(n, Twin | Portable)
        }

    def _shapes(self, n: int, noises: tuple[Tree, Tree]) -> dict[str, ShapeDtype]:
        """Return the shapes of the arrays exchanged with a worker of n environments for a block."""
        obs = tree_map(lambda x: np.repeat(x, n, 0), self._obs)
        state = self.actors[0].initial_state(n)
        _, extra, _ = self.actors[0].act(obs, state, tree_map(lambda x: x[0, :n], noises[0]))
        leaf, beside = self.own.environments.action, self.own.environments.extra
        stored = {name: np.asarray(x) for name, x in extra.items()}
        stored = {
            name: x.astype(np.float32) if x.dtype == np.float64 else x for name, x in stored.items()
        }
        stored |= {name: np.zeros((n, *x.shape), x.dtype) for name, x in beside.items()}
        action = np.empty((n, *leaf.shape), leaf.dtype)
        shapes = block_shapes(len(leaves(noises[1])[0]), obs, action, stored, state)
        for names, noise in zip(self._noise_names, noises, strict=True):
            parts = leaves(tree_map(lambda x: x[:, :n], noise))
            shapes |= {name: shape_dtype(x) for name, x in zip(leaves(names), parts, strict=True)}
        return shapes


def _array_names(noise: Tree, actor: int) -> Tree:
    """Return an actor's noise tree with array names as leaves."""
    numbers = itertools.count()
    return tree_map(lambda _: f"noise {actor}/{next(numbers)}", noise)


def blank(spec: Spec) -> Tree:
    """Return an observation [1, ...] of zeros, with masks that allow all actions."""
    if not isinstance(spec, dict):
        return np.zeros((1, *spec.shape), spec.dtype)
    return {
        k: (np.ones if k == MASK else np.zeros)((1, *leaf.shape), leaf.dtype)
        for k, leaf in spec.items()
    }
