"""Collection in a worker: the same collector as in a single process, for a share of the
environments."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from tandem.envs.vector import closed_on_error
from tandem.learning.collect.actor import PolicyActor, Portable, RandomActor
from tandem.learning.collect.collector import Collector
from tandem.learning.collect.trajectories import BlockInfo, pack
from tandem.learning.parallel.env_factory import EnvFactory
from tandem.learning.parallel.transport import Weights, writable
from tandem.networks.plan import Twin
from tandem.spaces import ActionMode
from tandem.types import Array, Cuts, JSONDict, Trajectory, Tree, tree_map
from tandem.workers.shared_memory import ShapeDtype, shape_dtype


def block_shapes(
    steps: int, obs: Tree, action: Array, extra: dict[str, Array], state: Tree
) -> dict[str, ShapeDtype]:
    """Return the shapes of the packed arrays of `steps` steps, given examples [n, ...] of one step
    of n environments."""
    n = len(action)

    def repeat(x: Array) -> Array:  # without allocating memory
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
    """Arguments of a worker's collector."""

    env_factory: EnvFactory
    gamma: float
    action_mode: ActionMode
    actors: tuple[PolicyActor, RandomActor]
    noises: tuple[Tree, Tree]  # per actor: its noise tree, with array names as leaves


class WorkerCollector:
    """Responder in a worker that collects in the environments first to first + count of `part`, in
    its generation."""

    def __init__(self, spec: CollectorSpec, part: tuple[int, int, int]) -> None:
        if "jax" not in sys.modules:  # an environment may have imported JAX
            os.environ.setdefault("JAX_PLATFORMS", "cpu")
        environments = spec.env_factory.make(*part)
        with closed_on_error(environments.close):
            self.collector = Collector(environments, spec.gamma, spec.action_mode)
        self.close = environments.close
        self.actors, self.noises = spec.actors, spec.noises

    def respond(
        self, message: tuple[int, int, list[object]], weights: Weights, arrays: Mapping[str, Array]
    ) -> tuple[BlockInfo, dict[str, Array]]:
        """Collect a block for the message (steps, index of the actor, calls), with noise from the
        arrays, after making the calls on the environments. Return the packed block."""
        steps, number, calls = message
        self.collector.make_calls(calls)
        for role, network in self.actors[0].networks.items():
            assert isinstance(network, Twin | Portable)
            network.load(writable(weights[role]))
        noise = tree_map(lambda name: arrays[name][:steps], self.noises[number])
        block = self.collector.collect(steps, self.actors[number], noise)
        return BlockInfo.of(block, self.collector.episodes), pack(block)

    def attribute(self, name: str, calls: list[object]) -> list[Any]:
        """Return the values of an attribute after these calls."""
        self.collector.make_calls(calls)
        return self.collector.attribute(name)

    def state(self, calls: list[object]) -> tuple[JSONDict, dict[str, Array]]:
        """Return the collector's state after these calls."""
        self.collector.make_calls(calls)
        return self.collector.state()

    def load_state(self, data: JSONDict, arrays: dict[str, Array]) -> str:
        self.collector.load_state(data, arrays)
        return self.collector.restarted
