"""A worker's part of the environments: the same collector as in one process, elsewhere."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from tandem.collect.actor import PolicyActor, Portable, RandomActor
from tandem.collect.collector import Collector
from tandem.collect.trajectories import BlockInfo, pack
from tandem.networks.plan import Twin
from tandem.parallel.env_factory import EnvFactory
from tandem.parallel.shared_memory import Handle, ShapeDtype, SharedArrays, shape_dtype
from tandem.types import Array, Cuts, Trajectory, Tree, tree_map


def block_shapes(
    steps: int, obs: Tree, action: Array, extra: dict[str, Array], state: Tree
) -> dict[str, ShapeDtype]:
    """Of the packed arrays of `steps` steps, given an example of one step of n environments,
    [n, ...] each."""
    n = len(action)

    def repeat(x: Array) -> Array:  # without memory for it
        return np.broadcast_to(x, (steps, *x.shape))

    number, flag = np.zeros((steps, n), np.float32), np.zeros((steps, n), np.bool_)
    index = np.zeros(steps * n, np.int64)
    last_obs = tree_map(lambda x: np.broadcast_to(x[:1], (steps * n, *x.shape[1:])), obs)
    block = Trajectory(
        obs=tree_map(repeat, obs),
        action=repeat(action),
        reward=number,
        discount=number,
        last=flag,
        valid=flag,
        cuts=Cuts(index, index, last_obs),
        bootstrap=obs,
        extra={name: repeat(x) for name, x in extra.items()},
        state=state,
    )
    return {name: shape_dtype(x) for name, x in pack(block).items()}


class CollectorSpec(NamedTuple):
    """What workers do: step these environments, by the policy, or by chance."""

    env_factory: EnvFactory
    gamma: float
    action_mode: Any
    actors: tuple[PolicyActor, RandomActor]


class WorkerCollector:
    """Lives with a worker: environments first to first + count of `part`, in its life."""

    def __init__(self, spec: CollectorSpec, part: tuple[int, int, int]) -> None:
        self.collector, self.actors = (
            Collector(spec.env_factory.make(*part), spec.gamma, spec.action_mode),
            spec.actors,
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


class SharedMemoryWorkerCollector(WorkerCollector):
    """In a process. For each slot `handles` is of what this worker alone has in common with the
    parent, the noise and the block, and `weights` of what all have."""

    def __init__(
        self,
        spec: CollectorSpec,
        part: tuple[int, int, int],
        noises: tuple[Tree, Tree],
        handles: tuple[Handle, ...],
        weights: tuple[Handle, ...],
    ) -> None:
        super().__init__(spec, part)
        self.noises = noises
        self.shared = [SharedArrays.attach(handle) for handle in handles]
        self.weights = [SharedArrays.attach(handle) for handle in weights]

    def on_bytes(self, asked: bytes) -> bytes:
        """Fills the block of a slot."""
        slot, steps, who = json.loads(asked)
        shared = self.shared[slot]
        noise = tree_map(lambda name: shared[name][:steps], self.noises[who])
        block = self.collect(
            steps, who, {r: self.weights[slot].under(r) for r in self.actors[0].networks}, noise
        )
        for name, x in pack(block).items():
            shared[name][: len(x)] = x
        return json.dumps(BlockInfo.of(block, self.collector.episodes)).encode()


class RayWorkerCollector(WorkerCollector):
    """Where there is no memory in common: arrays come and go with what is asked and answered."""

    def block(
        self, steps: int, who: int, weights: Mapping[str, Mapping[str, Array]], noise: Tree
    ) -> tuple[BlockInfo, dict[str, Array]]:
        """A block: what is to be said of it, and its arrays by name."""
        own = tree_map(np.array, weights)  # what comes from the store is not to be written
        block = self.collect(steps, who, own, noise)
        return BlockInfo.of(block, self.collector.episodes), pack(block)
