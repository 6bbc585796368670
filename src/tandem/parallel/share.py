"""A worker's share of the environments: the same collector as in one process, with its blocks in
shared memory."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tandem.collect.actor import PolicyActor, Portable, RandomActor
from tandem.collect.collector import Collector, Ended
from tandem.envs.factory import EnvLike, environment_name, is_instance, vectorize
from tandem.envs.vector import Environments
from tandem.errors import SettingError
from tandem.networks.plan import Twin
from tandem.parallel.shared_memory import Arrays, Form, Handle, form
from tandem.types import Array, Cuts, Episode, Trajectory, Tree, leaves, tree_map

PLAIN = ("action", "reward", "discount", "last", "valid")  # of a trajectory, [T, n, ...] each


@dataclass(frozen=True)
class Source:
    """N environments as they are made: the arguments of `vectorize`."""

    env: EnvLike
    n: int
    seed: int
    mode: Any
    kwargs: Mapping[str, Any] | None
    spec: Any = None  # of an id that a script may have registered itself

    @classmethod
    def of(
        cls, env: EnvLike, n: int, seed: int, mode: Any, kwargs: Mapping[str, Any] | None
    ) -> Source:
        """With the spec of an id that Gymnasium knows here."""
        import gymnasium

        return cls(
            env,
            n,
            seed,
            mode,
            kwargs,
            gymnasium.registry.get(env) if isinstance(env, str) else None,
        )

    def part(self, first: int, count: int, generation: int = 0) -> Environments:
        """`count` of them from number `first` on, with the seeds that they have among all; in a
        later `generation` other ones."""
        seed = generation_seed(self.seed, generation)
        if self.spec is not None:
            import gymnasium

            gymnasium.registry.setdefault(self.env, self.spec)
        return vectorize(self.env, count, seed, self.mode, self.kwargs, first=first)


def must_travel(env: EnvLike, asked: str) -> None:
    """SettingError for an environment that cannot be in several processes, which were asked for."""
    if is_instance(env):
        raise SettingError(
            f"{asked} for {environment_name(env)}, which is one object in this process.",
            "an id, or a callable that makes an environment wherever it is called",
            "pass one of these.",
        )


def generation_seed(seed: int, generation: int) -> int:
    """The seed of environments that began anew `generation` times: the run's own at first."""
    return (
        int(np.random.SeedSequence((seed, generation)).generate_state(1)[0]) if generation else seed
    )


def parts(n: int, processes: int) -> list[tuple[int, int]]:
    """(first, count) of each process's environments, as even as can be; the first process has no
    more than the others."""
    sizes = [n // processes] * processes
    for i in range(n % processes):
        sizes[-1 - i] += 1
    ends = np.cumsum(sizes)
    return [(int(end) - size, size) for end, size in zip(ends, sizes, strict=True)]


def forms(
    steps: int, obs: Tree, action: Array, extra: dict[str, Array], state: Tree
) -> dict[str, Form]:
    """The arrays that a block of `steps` steps needs, by an example of one step of n environments,
    [n, ...] each."""
    n = len(action)
    found: dict[str, Form] = {
        "action": _longer(steps, action),
        "reward": ((steps, n), "<f4"),
        "discount": ((steps, n), "<f4"),
    }
    found |= {"last": ((steps, n), "|b1"), "valid": ((steps, n), "|b1")}
    found |= {f"extra/{name}": _longer(steps, x) for name, x in extra.items()}
    for j, x in enumerate(leaves(obs)):
        found |= {
            f"obs/{j}": _longer(steps, x),
            f"bootstrap/{j}": form(x),
            f"cut/{j}": ((steps * n, *x.shape[1:]), x.dtype.str),
        }
    found |= {f"state/{j}": form(x) for j, x in enumerate(leaves(state))}
    return found | {f"cut_{name}": ((steps * n,), "<i8") for name in ("t", "env")}


def _longer(steps: int, x: Array) -> Form:
    return (steps, *x.shape), x.dtype.str


class BlockInfo(NamedTuple):
    """What a worker says of a block beside what is in the shared arrays."""

    steps: int
    cuts: int
    extra: tuple[str, ...]  # what the actor left beside its actions
    recurrent: bool
    episodes: list[Ended]

    @classmethod
    def read(cls, data: list[Any]) -> BlockInfo:
        """What one has become as JSON."""
        steps, cuts, extra, recurrent, episodes = data
        return cls(
            steps,
            cuts,
            tuple(extra),
            recurrent,
            [Ended(t, Episode(*episode)) for t, episode in episodes],
        )


def named(block: Trajectory) -> dict[str, Array]:
    """A block's arrays by name; `got` is the way back."""
    found = {name: getattr(block, name) for name in PLAIN} | {
        f"extra/{name}": x for name, x in block.extra.items()
    }
    found |= {"cut_t": block.cuts.t, "cut_env": block.cuts.env}
    trees = {
        "obs": block.obs,
        "bootstrap": block.bootstrap,
        "cut": block.cuts.obs,
        "state": block.state,
    }
    return found | {
        f"{name}/{j}": x for name, tree in trees.items() for j, x in enumerate(leaves(tree))
    }


def said(block: Trajectory, episodes: list[Ended]) -> BlockInfo:
    """What is to be said of a block beside its arrays."""
    return BlockInfo(
        len(block.reward),
        len(block.cuts.t),
        tuple(block.extra),
        bool(leaves(block.state)),
        episodes,
    )


def got(
    shared: Mapping[str, Array] | Arrays, said: BlockInfo, obs: Tree, state: Tree
) -> Trajectory:
    """The block, as views; `obs` and `state` are trees of any leaves, for their structure."""

    def tree(like: Tree, name: str, end: int | None) -> Tree:
        numbers = itertools.count()
        return tree_map(lambda _: shared[f"{name}/{next(numbers)}"][:end], like)

    action, reward, discount, last, valid = (shared[name][: said.steps] for name in PLAIN)
    return Trajectory(
        tree(obs, "obs", said.steps),
        action,
        reward,
        discount,
        last,
        valid,
        cuts=Cuts(
            shared["cut_t"][: said.cuts],
            shared["cut_env"][: said.cuts],
            tree(obs, "cut", said.cuts),
        ),
        bootstrap=tree(obs, "bootstrap", None),
        extra={name: shared[f"extra/{name}"][: said.steps] for name in said.extra},
        state=tree(state, "state", None) if said.recurrent else (),
    )


def joined(blocks: list[Trajectory], firsts: list[int]) -> Trajectory:
    """Blocks of environments side by side, in new arrays."""

    if len(blocks) == 1:
        whole: Trajectory = tree_map(np.array, blocks[0])
        return whole

    def beside(*xs: Array) -> Array:
        return np.concatenate(xs, 1)

    def after(*xs: Array) -> Array:
        return np.concatenate(xs)

    t = np.concatenate([b.cuts.t for b in blocks])
    env = np.concatenate([b.cuts.env + first for b, first in zip(blocks, firsts, strict=True)])
    order = np.lexsort((env, t))
    return Trajectory(
        obs=tree_map(beside, *(b.obs for b in blocks)),
        action=beside(*(b.action for b in blocks)),
        reward=beside(*(b.reward for b in blocks)),
        discount=beside(*(b.discount for b in blocks)),
        last=beside(*(b.last for b in blocks)),
        valid=beside(*(b.valid for b in blocks)),
        cuts=Cuts(
            t[order],
            env[order],
            tree_map(lambda *xs: np.concatenate(xs)[order], *(b.cuts.obs for b in blocks)),
        ),
        bootstrap=tree_map(after, *(b.bootstrap for b in blocks)),
        extra={name: beside(*(b.extra[name] for b in blocks)) for name in blocks[0].extra},
        state=tree_map(after, *(b.state for b in blocks)),
    )


class Work(NamedTuple):
    """What workers do: step these environments, by the policy, or by chance."""

    source: Source
    gamma: float
    action_mode: Any
    actors: tuple[PolicyActor, RandomActor]


class Share:
    """Lives with a worker: environments first to first + count of `part`, in its life."""

    def __init__(self, work: Work, part: tuple[int, int, int]) -> None:
        self.collector, self.actors = (
            Collector(work.source.part(*part), work.gamma, work.action_mode),
            work.actors,
        )

    def collect(
        self, steps: int, who: int, weights: Mapping[str, Mapping[str, Array]], noise: Tree
    ) -> Trajectory:
        """A block by the policy, 0, with the weights of each role, or by chance, 1."""
        for role, network in self.actors[0].networks.items():
            assert isinstance(network, Twin | Portable)
            network.load(weights[role])  # type: ignore[arg-type]
        return self.collector.collect(steps, self.actors[who], noise)

    def state(self) -> Any:
        return self.collector.state()

    def load_state(self, data: Any, arrays: Any) -> None:
        self.collector.load_state(data, arrays)


class MemoryShare(Share):
    """In a process. For each slot `handles` is of what this worker alone has in common with the
    parent, the noise and the block, and `weights` of what all have."""

    def __init__(
        self,
        work: Work,
        part: tuple[int, int, int],
        noises: tuple[Tree, Tree],
        handles: tuple[Handle, ...],
        weights: tuple[Handle, ...],
    ) -> None:
        super().__init__(work, part)
        self.noises = noises
        self.shared = [Arrays.attached(handle) for handle in handles]
        self.weights = [Arrays.attached(handle) for handle in weights]

    def on_bytes(self, asked: bytes) -> bytes:
        """Fills the block of a slot."""
        slot, steps, who = json.loads(asked)
        shared = self.shared[slot]
        noise = tree_map(lambda name: shared[name][:steps], self.noises[who])
        block = self.collect(
            steps, who, {r: self.weights[slot].within(r) for r in self.actors[0].networks}, noise
        )
        for name, x in named(block).items():
            shared[name][: len(x)] = x
        return json.dumps(said(block, self.collector.episodes)).encode()


class SentShare(Share):
    """Where there is no memory in common: arrays come and go with what is asked and answered."""

    def block(
        self, steps: int, who: int, weights: Mapping[str, Mapping[str, Array]], noise: Tree
    ) -> tuple[BlockInfo, dict[str, Array]]:
        """A block: what is to be said of it, and its arrays by name."""
        own = tree_map(np.array, weights)  # what comes from the store is not to be written
        block = self.collect(steps, who, own, noise)
        return said(block, self.collector.episodes), named(block)
