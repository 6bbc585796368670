"""Construction of a run's algorithm from its Config, in the run's process and in additional
processes that learn."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import Any, NamedTuple

from tandem import algorithms, backends
from tandem.backends.backend import RECORDER
from tandem.envs.vector import Environments
from tandem.errors import SettingError, nearest
from tandem.learning import config
from tandem.learning.config import Config
from tandem.learning.seeds import Generators, derived
from tandem.spaces import Leaf, Spec


class Spaces(NamedTuple):
    """Spaces of an algorithm's environments."""

    observation: Spec
    action: Leaf
    observation_space: Any

    @classmethod
    def of(cls, environments: Environments) -> Spaces:
        return cls(environments.observation, environments.action, environments.observation_space)


def build(
    conf: Config,
    environments: Spaces | Environments,
    generators: Generators,
    network: object,
    optimizer: object = None,
    rank: int = 0,
) -> Any:
    """Create the algorithm with its networks, on its backend. optimizer, rank: see
    `backends.make`."""
    observation, action, s = environments.observation, environments.action, conf.settings
    kind = algorithms.for_actions(conf.kind, action)
    kind.check(observation, action, s)
    backends.prepare(conf.options.devices)
    sources = kind.sources(
        observation, action, s, network, environments.observation_space, generators
    )
    backend = backends.make(
        conf.framework,
        conf.device,
        seed=derived(generators.seed, f"framework {rank}" if rank else "framework"),
        threads=conf.options.threads,
        compile=config.compiling(conf),
        updates=s.steps * s.update_rate,
        compile_cache=conf.options.compile_cache,
        optimizer=optimizer,
        devices=conf.options.devices,
        rank=rank,
    )
    backend.float32 = True
    backend.freeze = conf.options.freeze
    backend.enter_process()
    algorithm = kind(backend, sources, observation, action, s)
    return algorithm


def expect_frozen(backend: Any) -> None:
    """Raise SettingError for a name in `freeze` that no weight has."""
    if unknown := [x for x in backend.freeze if x not in backend.frozen]:
        names = {n: x for n, x in backend.shapes.items() if not n.endswith("_target")}
        parts = [[*f"{n}.{x}".split(".")] for n, weights in names.items() for x in weights]
        ends = {".".join(x[: i + 1]): end for x in parts for i, end in enumerate(x)}
        layers = [*dict.fromkeys(".".join(x[:-1]) for x in parts)]
        near = nearest(unknown[0], [*ends.values(), *ends], 1)
        close = [x for x, end in ends.items() if near and near[0] in (x, end)][:4] or layers[:1]
        raise SettingError(
            f"freeze={unknown[0]!r} names no weight of this run.",
            f"a name, or the beginning of one; the layers are {', '.join(layers)}",
            f"give freeze={','.join(close)!r}",
        )


def beside(conf: Config) -> Config:
    """Return the Config for an additional process: on one device, which is the CPU unless the
    user chose "cuda" explicitly, since a framework may reserve most of the GPU's memory, as JAX
    does on startup."""
    conf = replace(conf, options=replace(conf.options, devices=1))
    if conf.device == "cuda":
        return conf
    if "jax" not in sys.modules:
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
    return replace(conf, device="cpu")


def network_there(conf: Config, spaces: Spaces, network: object, role: str) -> Any:
    """Create the network of a role in a process that uses the framework only to act with it."""
    there = beside(replace(conf, device="auto"))
    algorithm = build(there, spaces, Generators(conf.seed), network, RECORDER)  # needs no moments
    return algorithm.backend.networks[role]
