"""How workers are asked for blocks of steps, and how these come back: through memory in common, or
over a cluster."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from tandem.collect.trajectories import BlockInfo, Ended
from tandem.parallel.process import Process, WorkerHandle
from tandem.parallel.shared_memory import ShapeDtype, SharedArrays, shape_dtype
from tandem.parallel.worker_collector import CollectorSpec, SharedMemoryWorkerCollector
from tandem.parallel.worker_group import Worker
from tandem.types import Array, Episode, Tree, leaves, tree_map

Weights = Mapping[str, Mapping[str, Array]]  # of each role that acts
Draw = Callable[[int], Tree]  # an example of the noise of that many steps, for all environments


class BlockRequest(NamedTuple):
    """A block, before it is there."""

    slot: int  # of those that can be asked for at a time
    steps: int
    who: int  # acts: the policy, 0, or chance, 1


class Transport(Protocol):
    """Between a pool and its workers."""

    def line(self, worker: Worker) -> WorkerHandle:
        """To a worker that begins, for the first time or anew."""

    def publish(self, slot: int, weights: Weights) -> None:
        """These are what all blocks of the slot are to be collected with."""

    def ask(self, worker: Worker, asked: BlockRequest, noise: Tree) -> None:
        """Begins a worker's part of a block; its noise is [steps, its environments, ...]."""

    def ask_again(self, worker: Worker, asked: BlockRequest) -> None:
        """The same once more, of one that began anew."""

    def said(self, worker: Worker, slot: int, answer: Any) -> BlockInfo:
        """What a worker's answer says of the block of a slot."""

    def block(self, worker: Worker, slot: int) -> Mapping[str, Array]:
        """Its arrays, good until the slot is asked for again."""

    def saved(self, worker: Worker, slot: int) -> dict[str, Array]:
        """Copies of them, for a checkpoint."""

    def load(self, worker: Worker, slot: int, arrays: dict[str, Array]) -> None:
        """Takes them back as a block that is there."""


class SharedMemoryTransport:
    """Through memory that processes have in common: nothing is pickled, and a block is copied once.

    forms: the arrays of a block of so many environments."""

    def __init__(
        self,
        spec: CollectorSpec,
        slots: int,
        weights: Weights,
        draws: tuple[Draw, Draw],
        steps: int,
        shares: list[tuple[int, int]],
        forms: Callable[[int], dict[str, ShapeDtype]],
    ) -> None:
        self._spec = spec
        shapes = {
            f"{role}/{n}": shape_dtype(x)
            for role, arrays in weights.items()
            for n, x in arrays.items()
        }
        self._weights = [SharedArrays.create(shapes) for _ in range(slots)]
        examples = [draw(steps) for draw in draws]
        self._noises = tuple(_named(example, who) for who, example in enumerate(examples))
        self._shared: dict[
            int, list[SharedArrays]
        ] = {}  # by a worker's first environment: a block for each slot
        for first, count in shares:
            needed = forms(count)
            for who, example in enumerate(examples):
                names, cut = (
                    leaves(self._noises[who]),
                    leaves(tree_map(lambda x, n=count: x[:, :n], example)),
                )
                needed |= {name: shape_dtype(x) for name, x in zip(names, cut, strict=True)}
            self._shared[first] = [SharedArrays.create(needed) for _ in range(slots)]

    def line(self, worker: Worker) -> WorkerHandle:
        shared = (
            tuple(a.handle for a in self._shared[worker.first]),
            tuple(a.handle for a in self._weights),
        )
        inherits = tuple(handle.fd for handles in shared for handle in handles)
        return Process(
            inherits, SharedMemoryWorkerCollector, self._spec, worker.part, self._noises, *shared
        )

    def publish(self, slot: int, weights: Weights) -> None:
        for role, arrays in weights.items():
            for name, x in arrays.items():
                np.copyto(self._weights[slot][f"{role}/{name}"], x)

    def ask(self, worker: Worker, asked: BlockRequest, noise: Tree) -> None:
        for name, x in zip(leaves(self._noises[asked.who]), leaves(noise), strict=True):
            self._shared[worker.first][asked.slot][name][: asked.steps] = x
        self.ask_again(worker, asked)

    def ask_again(self, worker: Worker, asked: BlockRequest) -> None:
        worker.send_bytes(json.dumps(asked).encode())

    def said(self, worker: Worker, slot: int, answer: Any) -> BlockInfo:
        return BlockInfo.read(json.loads(answer))

    def block(self, worker: Worker, slot: int) -> SharedArrays:
        return self._shared[worker.first][slot]

    def saved(self, worker: Worker, slot: int) -> dict[str, Array]:
        return {n: x.copy() for n, x in self._shared[worker.first][slot].items()}

    def load(self, worker: Worker, slot: int, arrays: dict[str, Array]) -> None:
        for name, x in arrays.items():
            self._shared[worker.first][slot][name][: len(x)] = x


def number_episodes(episodes: list[Ended], worker: Worker) -> list[Ended]:
    """Episodes of a worker, with the numbers that its environments have among all."""
    return [Ended(t, Episode(worker.first + e.env, *e[1:])) for t, e in episodes]


def _named(tree: Tree, who: int) -> Tree:
    """Names of arrays in the place of a tree's leaves."""
    numbers = iter(range(len(leaves(tree))))
    return tree_map(lambda _: f"noise {who}/{next(numbers)}", tree)
