"""Worker processes that step shares of the environments: as one collector, in lock-step, or ahead of who learns."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np

from tandem.collect.actor import ChanceActor, PolicyActor, Portable
from tandem.collect.collector import Collector, Ended
from tandem.collect.vector import Json
from tandem.errors import ResumeError, SettingError
from tandem.networks.plan import Twin, select
from tandem.parallel.crew import Crew, Worker
from tandem.parallel.memory import Arrays, form
from tandem.parallel.process import Process
from tandem.parallel.share import Said, Share, Source, forms, got, joined, must_travel, parts
from tandem.spaces import MASK, Spec
from tandem.types import Array, Trajectory, Tree, leaves, tree_map

Draw = Callable[[int], Tree]  # an example of the noise of that many steps, for all environments


def blocks_ahead(ahead: int, on_policy: bool) -> int:
    """What `ahead` of a run's options means: -1 is 1 where the algorithm may learn from older policies."""
    return int(not on_policy) if ahead < 0 else ahead


@dataclass(frozen=True)
class Terms:
    """How workers are kept."""

    workers: int
    ahead: int = 0  # blocks that they collect while what came before is learned from; 0: every block waits for all
    patience: float = 60.0  # seconds that a block may take
    restarts: int = 3  # in a run

    @classmethod
    def of(cls, source: Source, workers: int, ahead: int, patience: float, restarts: int, on_policy: bool) -> Terms:
        """As the options of a run say; ahead=-1 is 1 where the algorithm may learn from older policies. SettingError where the
        environments cannot be shared out among the workers, and this process in lock-step."""
        if workers and ahead > 0 and on_policy:
            raise SettingError(
                f"ahead={ahead} with an algorithm that learns from its newest policy's steps only.",
                "0: every block waits until the one before it is learned from",
                "leave ahead out.",
            )
        terms = cls(workers, blocks_ahead(ahead, on_policy) if workers else 0, patience, restarts)
        most = source.n if terms.ahead else source.n - 1
        if not 0 <= workers <= most:
            also = "" if terms.ahead else ", and one for this process"
            raise SettingError(
                f"workers={workers} for {source.n} environments.",
                f"one environment at least for each worker{also}",
                f"give more environments (envs={workers + source.n - most}), or at most {most} workers.",
            )
        if workers:
            must_travel(source.env, f"workers={workers}")
        return terms

    def parts(self, n: int) -> list[tuple[int, int]]:
        """(first, count) of this process's environments, which are none where workers are ahead, and of each worker's."""
        return [(0, 0), *parts(n, self.workers)] if self.ahead else parts(n, self.workers + 1)


@dataclass
class Request:
    """A block that was asked for, and what each worker said of it so far."""

    slot: int  # of shared memory
    steps: int
    who: int
    version: int  # of the weights, in updates
    said: list[Said | None]
    broken: list[int] = field(default_factory=list)

    @property
    def asked(self) -> bytes:
        """What a worker is told of it."""
        return json.dumps([self.slot, self.steps, self.who]).encode()


class Pool:
    """Collects as a `Collector` does, N environments as one block.

    In lock-step `own` steps the first of them in this process, and a run is that of one process, but for the rounding of matrix
    products over other numbers of rows: seeds and noise do not depend on the number of workers. With `terms.ahead` blocks
    `own` steps none, and a block comes that many calls after it was asked for, with the weights of then: so workers collect
    while this process learns, as far ahead and no farther, and a run is the same each time, too.

    A worker that dies, raises or stands still is started anew, `terms.restarts` times in all, after which WorkerError is
    raised. It costs the unfinished episodes of its environments, which are in `broken` after the `collect` that brings the
    first of its new steps."""

    def __init__(
        self,
        source: Source,
        terms: Terms,
        own: Collector,
        actors: tuple[PolicyActor, ChanceActor],
        steps: int,
        draws: tuple[Draw, Draw],
        make: tuple[float, Any],
    ) -> None:
        self.source, self.terms, self.own, self.actors, self.n, self._make = source, terms, own, actors, source.n, make
        self.environments, self.seconds = own.environments, own.seconds
        self.episodes: list[Ended] = []
        self.broken: list[int] = []
        self.env_steps = 0
        self.version = 0  # updates made so far
        self.lag: int | None = None  # those of them that the weights of the last block had not seen, where workers are ahead
        self._broken_later: list[int] = []  # environments that began anew while no block of theirs was asked for
        self._pending: deque[Request] = deque()
        self._slot, slots = 0, terms.ahead + 1
        weights = {f"{role}/{n}": x for role, network in self._acting.items() for n, x in network.weights.items()}
        self._weights = [Arrays.made({name: form(x) for name, x in weights.items()}) for _ in range(slots)]
        examples = [draw(steps) for draw in draws]
        self._noises = tuple(_named(example, who) for who, example in enumerate(examples))
        self._obs, self._state = blank(own.environments.observation), actors[0].initial_state(1)
        shares = terms.parts(source.n)[1:]
        self._shared: dict[int, list[Arrays]] = {}  # by a worker's first environment: a block for each slot
        for first, count in shares:
            given = forms(steps, *self._example(count, examples[0]))
            for who, example in enumerate(examples):
                names, cut = leaves(self._noises[who]), leaves(tree_map(lambda x, n=count: x[:, :n], example))
                given |= {name: form(x) for name, x in zip(names, cut, strict=True)}
            self._shared[first] = [Arrays.made(given) for _ in range(slots)]
        self.crew = Crew(own.environments.name, shares, terms.patience, terms.restarts, self._process)

    @property
    def begun_steps(self) -> int:
        """Environment steps that were collected or asked for."""
        return self.env_steps + sum(r.steps * self.n for r in self._pending)

    def collect(self, steps: int, actor: Any, noise: Tree = ()) -> Trajectory | None:
        """Asks for the next `steps` steps of every environment; see `Collector.collect`. None while no block is due."""
        slot, self._slot = self._slot, (self._slot + 1) % len(self._weights)
        request = Request(
            slot, steps, self.actors.index(actor), self.version, [None] * len(self.crew.workers), self._broken_later
        )
        self._broken_later = []
        for role, network in self._acting.items():
            for name, x in network.weights.items():
                np.copyto(self._weights[slot][f"{role}/{name}"], x)
        for worker in self.crew.workers:
            for name, x in zip(leaves(self._noises[request.who]), leaves(noise), strict=True):
                self._shared[worker.first][slot][name][:steps] = x[:, worker.columns]
            worker.poke(request.asked)
        self._pending.append(request)
        self.episodes, self.broken, blocks, firsts = [], [], [], []
        if not self.terms.ahead:
            blocks, firsts = [self.own.collect(steps, actor, tree_map(lambda x: x[:, : self.own.n], noise))], [0]
            self.episodes = list(self.own.episodes)
        elif len(self._pending) <= self.terms.ahead:
            return None
        began = perf_counter()
        self._settle(request := self._pending[0])
        self._pending.popleft()
        for worker, said in zip(self.crew.workers, request.said, strict=True):
            assert said is not None
            blocks.append(got(self._shared[worker.first][request.slot], said, self._obs, self._state))
            firsts.append(worker.first)
            self.episodes += [e._replace(episode=e.episode._replace(env=e.episode.env + worker.first)) for e in said.episodes]
        self.seconds["environment"] += perf_counter() - began
        self.episodes.sort(key=lambda e: (e.t, e.episode.env))
        self.broken, self.lag = request.broken, self.version - request.version if self.terms.ahead else None
        whole = joined(blocks, firsts)
        self.env_steps += int(np.count_nonzero(whole.valid))
        return whole

    def state(self) -> tuple[Json, dict[str, Array]]:
        """As `Collector.state`; blocks that were asked for are waited for, and part of it. Once a worker is lost for good there
        is no state of episodes: all begin anew."""
        data: Json = {"env_steps": self.env_steps, "seconds": dict(self.seconds), "restarts": 0, "pending": []}
        workers = self.crew.workers
        if self.crew.given_up:
            return data | {"begun": False, "lives": [w.life + 1 for w in workers]}, {}
        for request in self._pending:
            self._settle(request)
        states = [self.own.state(), *self.crew.gather("state", again=self._state_again)]
        arrays = {f"{i}/{name}": x for i, (_, inner) in enumerate(states) for name, x in inner.items()}
        for k, request in enumerate(self._pending):
            data["pending"].append([request.steps, request.who, request.version, request.said, request.broken])
            for i, worker in enumerate(workers):
                block = self._shared[worker.first][request.slot].within("")
                arrays |= {f"pending/{k}/{i}/{n}": x.copy() for n, x in block.items()}
        begun = any(inner["begun"] for inner, _ in states)
        data |= {"begun": begun, "parts": [inner for inner, _ in states], "lives": [w.life for w in workers]}
        return data | {"restarts": self.crew.restarts, "version": self.version}, arrays

    def load_state(self, data: Json, arrays: dict[str, Array]) -> None:
        """As `Collector.load_state`. ResumeError for a run with another number of workers."""
        workers = self.crew.workers
        if len(data.get("lives", [])) != len(workers) or len(data["pending"]) > self.terms.ahead:
            raise ResumeError(
                f"the run was saved with {len(data.get('lives', []))} workers; here are {len(workers)}.",
                "as many as it began with, as far ahead, since they hold its environments",
                "resume with the settings of the run.",
            )
        self.env_steps, self.crew.restarts, self.version = data["env_steps"], data["restarts"], data.get("version", 0)
        inner = [select(arrays, str(i)) for i in range(len(workers) + 1)]
        states = data.get("parts", [{**data, "begun": False}])
        self.own.load_state(states[0], inner[0])
        self.crew.live(data["lives"])
        if len(states) > 1:
            self.crew.tell("load_state", zip(states[1:], inner[1:], strict=True))
        self._pending.clear()
        for k, (steps, who, version, said, broken) in enumerate(data["pending"]):
            self._pending.append(Request(k, steps, who, version, [Said.read(x) for x in said], broken))
            for i, worker in enumerate(workers):
                for name, x in select(arrays, f"pending/{k}/{i}").items():
                    self._shared[worker.first][k][name][...] = x
        self._slot = len(data["pending"])

    def hurry(self) -> None:
        """See `Crew.hurry`."""
        self.crew.hurry()

    def close(self) -> None:
        """Ends all workers, and frees what this process's environments hold."""
        self.crew.end()
        self.own.close()

    # Workers

    def _process(self, worker: Worker) -> Process:
        """A process that builds its share."""
        shared = (tuple(a.handle for a in self._shared[worker.first]), tuple(a.handle for a in self._weights))
        inherits = tuple(handle.fd for handles in shared for handle in handles)
        part, (gamma, mode) = (worker.first, worker.count, worker.life), self._make
        return Process(inherits, Share, self.source, part, gamma, mode, self.actors, self._noises, *shared)

    def _settle(self, request: Request) -> None:
        """Waits for all that is missing of a block."""
        for i, said in enumerate(request.said):
            if said is None:
                request.said[i] = Said.read(json.loads(self.crew.answer(i, self._again)))

    def _again(self, worker: Worker) -> None:
        """Asks a worker that began anew for all blocks that are owed."""
        i = self.crew.workers.index(worker)
        owed = [r for r in self._pending if r.said[i] is None]
        broken = owed[0].broken if owed else self._broken_later
        broken += [e for e in worker.environments if e not in broken]
        for request in owed:
            worker.poke(request.asked)

    def _state_again(self, worker: Worker) -> None:
        self._again(worker)
        worker.ask("state")

    @property
    def _acting(self) -> dict[str, Twin | Portable]:
        """The networks that act, all of them such as can go to other processes."""
        return {role: n for role, n in self.actors[0].networks.items() if isinstance(n, Twin | Portable)}

    def _example(self, n: int, noise: Tree) -> tuple[Tree, Array, dict[str, Array], Tree]:
        """Observations, actions, what acting leaves and recurrent state of one step of n environments."""
        obs = tree_map(lambda x: np.repeat(x, n, 0), self._obs)
        state = self.actors[0].initial_state(n)
        _, extra, _ = self.actors[0].act(obs, state, tree_map(lambda x: x[0, :n], noise))
        leaf, beside = self.own.environments.action, self.own.environments.extra
        stored = {name: np.asarray(x) for name, x in extra.items()}
        stored |= {name: np.zeros((n, *x.shape), x.dtype) for name, x in beside.items()}
        stored = {name: x.astype(np.float32) if x.dtype == np.float64 else x for name, x in stored.items()}
        return obs, np.empty((n, *leaf.shape), leaf.dtype), stored, state


def blank(spec: Spec) -> Tree:
    """An observation [1, ...] of zeros, with masks that allow everything."""
    if not isinstance(spec, dict):
        return np.zeros((1, *spec.shape), spec.dtype)
    return {k: (np.ones if k == MASK else np.zeros)((1, *leaf.shape), leaf.dtype) for k, leaf in spec.items()}


def _named(tree: Tree, who: int) -> Tree:
    """Names of arrays in the place of a tree's leaves."""
    numbers = iter(range(len(leaves(tree))))
    return tree_map(lambda _: f"noise {who}/{next(numbers)}", tree)
