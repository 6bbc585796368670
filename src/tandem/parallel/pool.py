"""Lock-step: worker processes and this one step their shares of the environments, and every block waits for all."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from tandem.collect.actor import ChanceActor, PolicyActor
from tandem.collect.collector import Collector, Ended
from tandem.collect.vector import Json
from tandem.errors import ResumeError, SettingError, WorkerError
from tandem.networks.plan import Twin
from tandem.parallel.memory import Arrays, form
from tandem.parallel.process import Lost, Process, end
from tandem.parallel.share import Said, Share, Source, forms, got, parts
from tandem.spaces import MASK, Spec
from tandem.types import Array, Cuts, Trajectory, Tree, leaves, tree_map

Draw = Callable[[int], Tree]  # an example of the noise of that many steps, for all environments


@dataclass(frozen=True)
class Terms:
    """How workers are kept."""

    workers: int  # beside this process
    patience: float = 60.0  # seconds that a block may take
    restarts: int = 3  # in a run


class Worker:
    """One process and its share: environments first to first + count."""

    def __init__(self, first: int, count: int, shared: Arrays) -> None:
        self.first, self.count, self.shared, self.life = first, count, shared, 0
        self.process: Process | None = None

    @property
    def columns(self) -> slice:
        return slice(self.first, self.first + self.count)


class Pool:
    """Collects as a `Collector` does, N environments as one block; `own` steps the first of them in this process.

    Of one seed the episodes begin alike whatever the number of workers, and actions take the same noise: what is collected
    differs by the rounding of matrix products over other numbers of rows, and in nothing else.

    A worker that dies, raises or stands still is started anew, `terms.restarts` times in all, after which WorkerError is
    raised. It costs the unfinished episodes of its environments, which are in `broken` after that `collect`."""

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
        self.environments = own.environments
        self.episodes: list[Ended] = []
        self.env_steps, self.restarts = 0, 0
        self.seconds = own.seconds
        self.broken: list[int] = []
        self._lost = False  # a worker, for good
        self._weights = self._published()
        examples = [draw(steps) for draw in draws]
        self._noises = tuple(_named(example, who) for who, example in enumerate(examples))
        self._obs = blank(own.environments.observation)
        self._state = actors[0].initial_state(1)
        self.workers = []
        for first, count in parts(source.n, terms.workers + 1)[1:]:
            given = forms(steps, *self._example(count, examples[0]))
            for who, example in enumerate(examples):
                names, cut = leaves(self._noises[who]), leaves(tree_map(lambda x, n=count: x[:, :n], example))
                given |= {name: form(x) for name, x in zip(names, cut, strict=True)}
            self.workers.append(Worker(first, count, Arrays.made(given)))
        for worker in self.workers:
            self._begin(worker)
        for i, worker in enumerate(self.workers):
            self._answer(i, worker, [])

    def collect(self, steps: int, actor: Any, noise: Tree = ()) -> Trajectory:
        """The next `steps` steps of every environment, in new arrays; see `Collector.collect`."""
        who = self.actors.index(actor)
        for worker in self.workers:
            for name, x in zip(leaves(self._noises[who]), leaves(noise), strict=True):
                worker.shared[name][:steps] = x[:, worker.columns]
            self._ask(worker, "collect", steps, who)
        mine = tree_map(lambda x: x[:, : self.own.n], noise)
        blocks, self.episodes, self.broken = [self.own.collect(steps, actor, mine)], list(self.own.episodes), []
        began = perf_counter()
        for i, worker in enumerate(self.workers):
            said: Said = self._answer(i, worker, [("collect", steps, who)])
            blocks.append(got(worker.shared, said, self._obs, self._state))
            self.episodes += [e._replace(episode=e.episode._replace(env=e.episode.env + worker.first)) for e in said.episodes]
        self.own.seconds["environment"] += perf_counter() - began
        self.episodes.sort(key=lambda e: (e.t, e.episode.env))
        whole = _joined(blocks, [0, *(w.first for w in self.workers)])
        self.env_steps += int(np.count_nonzero(whole.valid))
        return whole

    def state(self) -> tuple[Json, dict[str, Array]]:
        """As `Collector.state`. Once a worker is lost for good there is none: then all episodes begin anew."""
        if self._lost:
            data: Json = {"begun": False, "env_steps": self.env_steps, "seconds": dict(self.seconds)}
            return data | {"lives": [w.life + 1 for w in self.workers], "restarts": 0}, {}
        parts: list[tuple[Json, dict[str, Array]]] = [self.own.state()]
        for worker in self.workers:
            self._ask(worker, "state")
        parts += [self._answer(i, worker, [("state",)]) for i, worker in enumerate(self.workers)]
        arrays = {f"{i}/{name}": x for i, (_, inner) in enumerate(parts) for name, x in inner.items()}
        return {
            "begun": parts[0][0]["begun"],
            "parts": [data for data, _ in parts],
            "lives": [w.life for w in self.workers],
            "env_steps": self.env_steps,
            "restarts": self.restarts,
        }, arrays

    def load_state(self, data: Json, arrays: dict[str, Array]) -> None:
        """As `Collector.load_state`. ResumeError for a run with another number of workers."""
        if len(data.get("lives", [])) != len(self.workers):
            raise ResumeError(
                f"the run was saved with {len(data.get('lives', []))} workers; here are {len(self.workers)}.",
                "as many as it began with, since they hold its environments",
                "resume with the same number.",
            )
        self.env_steps, self.restarts = data["env_steps"], data["restarts"]
        if "parts" not in data:
            self.own.load_state(data, {})
            for i, worker in enumerate(self.workers):
                worker.life = data["lives"][i]
                self._begin(worker)
                self._answer(i, worker, [])
            return
        inner = [
            {n.removeprefix(f"{i}/"): x for n, x in arrays.items() if n.startswith(f"{i}/")} for i in range(len(data["parts"]))
        ]
        self.own.load_state(data["parts"][0], inner[0])
        for i, worker in enumerate(self.workers):
            if worker.life != data["lives"][i]:  # its later episodes have the seeds of that life
                worker.life = data["lives"][i]
                self._begin(worker)
                self._answer(i, worker, [])
            self._ask(worker, "load_state", data["parts"][i + 1], inner[i + 1])
            self._answer(i, worker, [])

    def close(self) -> None:
        """Ends all workers, and frees what this process's environments hold."""
        end([w.process for w in self.workers if w.process is not None])
        self.own.close()

    # Workers

    def _begin(self, worker: Worker) -> None:
        """A process for it, which builds its share."""
        inherits = (worker.shared.handle.fd, self._weights.handle.fd)
        part, handles = (worker.first, worker.count, worker.life), (worker.shared.handle, self._weights.handle)
        gamma, mode = self._make
        worker.process = Process(inherits, Share, self.source, part, gamma, mode, self.actors, self._noises, *handles)

    def _ask(self, worker: Worker, name: str, *arguments: Any) -> None:
        assert worker.process is not None
        worker.process.ask(name, *arguments)

    def _answer(self, i: int, worker: Worker, again: list[tuple[Any, ...]]) -> Any:
        """What was asked last. A worker that is lost begins anew, and is asked for all of `again`."""
        assert worker.process is not None
        try:
            return worker.process.answer(self.terms.patience)
        except Lost as lost:
            who = f"worker {i + 1} ({_span(worker)} of {self.own.environments.name})"
            if self.restarts >= self.terms.restarts or not again or again[0][0] == "state":
                self._lost = True
                raise WorkerError(
                    f"{who} {lost}.\n{lost.trace}".rstrip(),
                    f"workers that keep going; {self.restarts} had been started anew before",
                    "mend the environment, or give it more memory or more time (worker_patience, worker_restarts).",
                ) from None
            self.restarts += 1
            warnings.warn(
                f"{who} {lost}; it is started anew ({self.restarts} of {self.terms.restarts}), and its unfinished episodes are"
                f" lost.\n{lost.trace}".rstrip(),
                stacklevel=2,
            )
        worker.life += 1
        self.broken += range(worker.first, worker.first + worker.count)
        self._begin(worker)
        self._answer(i, worker, [])
        for call in again:
            self._ask(worker, *call)
        return self._answer(i, worker, again)

    def _published(self) -> Arrays:
        """The weights that act, from now on in memory that all have in common; `publish` writes there."""
        twins = self.actors[0].networks
        for role, twin in twins.items():
            if not isinstance(twin, Twin):
                raise SettingError(
                    f"workers act without a framework, and the network {role!r} has layers that tandem does not know.",
                    "networks of known layers, see docs/networks.md",
                    "use such layers, or workers=0.",
                )
        given = {f"{role}/{n}": x for role, twin in twins.items() for n, x in twin.weights.items()}  # type: ignore[attr-defined]
        weights = Arrays.made({name: form(x) for name, x in given.items()})
        for name, x in given.items():
            weights[name][...] = x
        for role, twin in twins.items():
            twin.load(weights.within(role))  # type: ignore[attr-defined]
        return weights

    def _example(self, n: int, noise: Tree) -> tuple[Tree, Array, dict[str, Array], Tree]:
        """Observations, actions, what acting leaves and recurrent state of one step of n environments."""
        obs = tree_map(lambda x: np.repeat(x, n, 0), self._obs)
        state = self.actors[0].initial_state(n)
        _, extra, _ = self.actors[0].act(obs, state, tree_map(lambda x: x[0, :n], noise))
        leaf = self.own.environments.action
        stored = {
            k: x.astype(np.float32) if x.dtype == np.float64 else x for k, x in ((k, np.asarray(x)) for k, x in extra.items())
        }
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


def _joined(blocks: list[Trajectory], firsts: list[int]) -> Trajectory:
    """Blocks of environments side by side, in new arrays."""

    def beside(*xs: Array) -> Array:
        return np.concatenate(xs, 1)

    def after(*xs: Array) -> Array:
        return np.concatenate(xs)

    t = np.concatenate([b.cuts.t for b in blocks])
    env = np.concatenate([b.cuts.env + first for b, first in zip(blocks, firsts, strict=True)])
    order = np.lexsort((env, t))
    cut = tree_map(lambda *xs: np.concatenate(xs)[order], *(b.cuts.obs for b in blocks))
    return Trajectory(
        obs=tree_map(beside, *(b.obs for b in blocks)),
        action=beside(*(b.action for b in blocks)),
        reward=beside(*(b.reward for b in blocks)),
        discount=beside(*(b.discount for b in blocks)),
        last=beside(*(b.last for b in blocks)),
        valid=beside(*(b.valid for b in blocks)),
        cuts=Cuts(t[order], env[order], cut),
        bootstrap=tree_map(after, *(b.bootstrap for b in blocks)),
        extra={name: beside(*(b.extra[name] for b in blocks)) for name in blocks[0].extra},
        state=tree_map(after, *(b.state for b in blocks)),
    )


def _span(worker: Worker) -> str:
    last = worker.first + worker.count - 1
    return f"environment {last}" if worker.count == 1 else f"environments {worker.first} to {last}"
