"""A worker's part of the environments: the same collector as in one process, elsewhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from tandem.collect.actor import PolicyActor, Portable, RandomActor
from tandem.collect.collector import Collector
from tandem.collect.trajectories import BlockInfo, pack
from tandem.envs.vector import closed_on_error
from tandem.networks.plan import Twin
from tandem.parallel.env_factory import EnvFactory
from tandem.parallel.transport import Weights, writable
from tandem.spaces import ActionMode
from tandem.types import Array, Cuts, JSONDict, Trajectory, Tree, tree_map
from tandem.workers.shared_memory import ShapeDtype, shape_dtype


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
    """What a worker's collector is made of."""

    env_factory: EnvFactory
    gamma: float
    action_mode: ActionMode
    actors: tuple[PolicyActor, RandomActor]
    noises: tuple[Tree, Tree]  # of each actor: names of arrays in the place of its noise's leaves


class WorkerCollector:
    """Lives with a worker, and collects in environments first to first + count of `part`, in its
    generation."""

    def __init__(self, spec: CollectorSpec, part: tuple[int, int, int]) -> None:
        if "jax" not in sys.modules:  # which an environment may bring
            os.environ.setdefault("JAX_PLATFORMS", "cpu")
        environments = spec.env_factory.make(*part)
        with closed_on_error(environments.close):
            self.collector = Collector(environments, spec.gamma, spec.action_mode)
        self.close = environments.close
        self.actors, self.noises = spec.actors, spec.noises

    def respond(
        self, message: tuple[int, int, list[object]], weights: Weights, arrays: Mapping[str, Array]
    ) -> tuple[BlockInfo, dict[str, Array]]:
        """Collects (steps, number of the actor), with noise from the arrays, after some calls in
        the environments. Returns the packed block."""
        steps, number, calls = message
        self.collector.make_calls(calls)
        for role, network in self.actors[0].networks.items():
            assert isinstance(network, Twin | Portable)
            network.load(writable(weights[role]))
        noise = tree_map(lambda name: arrays[name][:steps], self.noises[number])
        block = self.collector.collect(steps, self.actors[number], noise)
        return BlockInfo.of(block, self.collector.episodes), pack(block)

    def attribute(self, name: str, calls: list[object]) -> list[Any]:
        """The values of an attribute after these calls."""
        self.collector.make_calls(calls)
        return self.collector.attribute(name)

    def state(self, calls: list[object]) -> tuple[JSONDict, dict[str, Array]]:
        """Of the collector, after these calls."""
        self.collector.make_calls(calls)
        return self.collector.state()

    def load_state(self, data: JSONDict, arrays: dict[str, Array]) -> str:
        self.collector.load_state(data, arrays)
        return self.collector.restarted
