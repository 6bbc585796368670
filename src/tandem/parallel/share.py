"""A worker's share of the environments: the same collector as in one process, with its blocks in shared memory."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tandem.collect.actor import ChanceActor, PolicyActor
from tandem.collect.collector import Collector, Ended
from tandem.collect.environments import EnvLike, environment_name, is_instance, vectorize
from tandem.collect.vector import Environments
from tandem.errors import SettingError
from tandem.networks.plan import Twin
from tandem.parallel.memory import Arrays, Form, Handle, form
from tandem.types import Array, Cuts, Trajectory, Tree, leaves, tree_map

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
    def of(cls, env: EnvLike, n: int, seed: int, mode: Any, kwargs: Mapping[str, Any] | None) -> Source:
        """With the spec of an id that Gymnasium knows here."""
        import gymnasium

        return cls(env, n, seed, mode, kwargs, gymnasium.registry.get(env) if isinstance(env, str) else None)

    def check(self, workers: int) -> None:
        """SettingError where they cannot be shared out among as many workers and this process."""
        if not 0 <= workers < max(2, self.n) or workers >= self.n:
            raise SettingError(
                f"workers={workers} for {self.n} environments.",
                "one environment at least for each worker, and one for this process",
                f"give more environments (envs={workers + 1}), or at most {self.n - 1} workers.",
            )
        if workers and is_instance(self.env):
            raise SettingError(
                f"workers={workers} for {environment_name(self.env)}, which is one object in this process.",
                "an id, or a callable that makes an environment wherever it is called",
                "pass one of these.",
            )

    def part(self, first: int, count: int, life: int = 0) -> Environments:
        """`count` of them from number `first` on, with the seeds that they have among all; in a later `life` other ones."""
        seed = self.seed if not life else int(np.random.SeedSequence((self.seed, life)).generate_state(1)[0])
        if self.spec is not None:
            import gymnasium

            gymnasium.registry.setdefault(self.env, self.spec)
        return vectorize(self.env, count, seed, self.mode, self.kwargs, first=first)


def parts(n: int, processes: int) -> list[tuple[int, int]]:
    """(first, count) of each process's environments, as even as can be; the first process has no more than the others."""
    sizes = [n // processes] * processes
    for i in range(n % processes):
        sizes[-1 - i] += 1
    ends = np.cumsum(sizes)
    return [(int(end) - size, size) for end, size in zip(ends, sizes, strict=True)]


def forms(steps: int, obs: Tree, action: Array, extra: dict[str, Array], state: Tree) -> dict[str, Form]:
    """The arrays that a block of `steps` steps needs, by an example of one step of n environments, [n, ...] each."""
    n = len(action)
    found: dict[str, Form] = {"action": _longer(steps, action), "reward": ((steps, n), "<f4"), "discount": ((steps, n), "<f4")}
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


class Said(NamedTuple):
    """What a worker says of a block beside what is in the shared arrays."""

    steps: int
    cuts: int
    extra: tuple[str, ...]  # what the actor left beside its actions
    recurrent: bool
    episodes: list[Ended]


def put(shared: Arrays, block: Trajectory, episodes: list[Ended]) -> Said:
    """Writes a block; `got` is the way back."""
    steps, cuts = len(block.reward), len(block.cuts.t)
    for name in PLAIN:
        shared[name][:steps] = getattr(block, name)
    for name, x in block.extra.items():
        shared[f"extra/{name}"][:steps] = x
    shared["cut_t"][:cuts], shared["cut_env"][:cuts] = block.cuts.t, block.cuts.env
    for name, tree, end in (("obs", block.obs, steps), ("bootstrap", block.bootstrap, None), ("cut", block.cuts.obs, cuts)):
        for j, x in enumerate(leaves(tree)):
            shared[f"{name}/{j}"][:end] = x
    state = leaves(block.state)
    for j, x in enumerate(state):
        shared[f"state/{j}"][:] = x
    return Said(steps, cuts, tuple(block.extra), bool(state), episodes)


def got(shared: Arrays, said: Said, obs: Tree, state: Tree) -> Trajectory:
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
        cuts=Cuts(shared["cut_t"][: said.cuts], shared["cut_env"][: said.cuts], tree(obs, "cut", said.cuts)),
        bootstrap=tree(obs, "bootstrap", None),
        extra={name: shared[f"extra/{name}"][: said.steps] for name in said.extra},
        state=tree(state, "state", None) if said.recurrent else (),
    )


class Share:
    """Lives in a worker. `handle` is of what this worker alone has in common with the parent, `weights` of what all have."""

    def __init__(
        self,
        source: Source,
        part: tuple[int, int, int],
        gamma: float,
        action_mode: Any,
        actors: tuple[PolicyActor, ChanceActor],
        noises: tuple[Tree, Tree],
        handle: Handle,
        weights: Handle,
    ) -> None:
        self.collector = Collector(source.part(*part), gamma, action_mode)
        self.actors, self.noises, self.shared, shared = actors, noises, Arrays.attached(handle), Arrays.attached(weights)
        for role, twin in actors[0].networks.items():
            assert isinstance(twin, Twin)
            twin.load(shared.within(role))

    def collect(self, steps: int, who: int) -> Said:
        """Fills the shared block; `who` acts: the policy, 0, or chance, 1."""
        noise = tree_map(lambda name: self.shared[name][:steps], self.noises[who])
        block = self.collector.collect(steps, self.actors[who], noise)
        return put(self.shared, block, self.collector.episodes)

    def state(self) -> Any:
        return self.collector.state()

    def load_state(self, data: Any, arrays: Any) -> None:
        self.collector.load_state(data, arrays)
