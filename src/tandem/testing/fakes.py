"""Algorithms on made-up data: what parity and contract suites, and your own tests, feed to a backend."""

from __future__ import annotations

from typing import Any

import numpy as np

from tandem import algorithms, backends
from tandem.algorithms.base import Call
from tandem.networks.defaults import sources
from tandem.spaces import Leaf, Spec
from tandem.types import Array, Batch, Tree, tree_map

VECTOR = Leaf("box", (4,), "float32", (), (-9.0,) * 4, (9.0,) * 4)
DISCRETE = Leaf("discrete", (), "int64", (2,))
MULTI = Leaf("multidiscrete", (2,), "int64", (2, 3))
BOX = Leaf("box", (2,), "float32", (), (-1.0,) * 2, (1.0,) * 2)


def build(
    name: str,
    framework: str,
    action: Leaf,
    observation: Spec = VECTOR,
    network: Any = None,
    seed: int = 0,
    compile: bool = False,
    **settings: Any,
) -> tuple[Any, Any]:
    """(algorithm, backend) of that name, on made-up spaces."""
    kind = algorithms.get(name).of(action)
    chosen = kind.Settings(**settings)
    backend = backends.make(framework, "cpu", seed=seed, compile=compile)
    made = sources(kind.roles(observation, action, chosen), network, None, lambda n: np.random.default_rng([seed, *n.encode()]))
    return kind(backend, made, observation, action, chosen), backend


def values(spec: Spec, shape: tuple[int, ...], rng: np.random.Generator) -> Tree:
    """Random elements of a space, [*shape, ...]."""
    if isinstance(spec, dict):
        return {k: values(s, shape, rng) for k, s in spec.items()}
    if spec.kind == "discrete":
        return rng.integers(spec.sizes[0], size=shape) + spec.start
    if spec.kind == "multidiscrete":
        return np.stack([rng.integers(n, size=shape) for n in spec.sizes], -1)
    if spec.kind == "multibinary" or spec.dtype == "uint8":
        return rng.integers(2 if spec.kind == "multibinary" else 256, size=(*shape, *spec.shape)).astype(spec.dtype)
    low, high = (np.asarray(bound, np.float32).reshape(spec.shape) for bound in (spec.low, spec.high))
    return np.clip(rng.standard_normal((*shape, *spec.shape), dtype=np.float32), low, high)


def batches(algorithm: Any, observation: Spec, action: Leaf, updates: int, rows: int, seed: int = 0) -> Batch:
    """Made-up data for a call of `updates` updates of `rows` rows each, [K, B, ...]; of an algorithm with a memory, in
    sequences."""
    rng = np.random.default_rng(seed)
    shape = (updates, rows // algorithm.sequence, algorithm.sequence) if algorithm.sequence else (updates, rows)
    settings = algorithm.schedule(Call(np.linspace(0, 1, updates), 0, updates, 0))
    obs, chosen = values(observation, shape, rng), values(action, shape, rng)

    def numbers() -> Array:
        return rng.standard_normal(shape, dtype=np.float32)

    if algorithm.needs == "rollouts":
        old = np.log(rng.uniform(0.3, 0.7, shape)).astype(np.float32)
        extra = {"log_prob": old, "advantage": numbers(), "return": numbers(), "value": numbers()}
        if algorithm.sequence:
            units = (*shape[:2], algorithm.settings.recurrent)
            extra |= {f"{n}_state": np.tanh(rng.standard_normal(units)).astype(np.float32) for n in ("actor", "critic")}
            extra["start"] = (rng.random(shape) < 0.2).astype(np.float32)
        if hasattr(algorithm, "divergence"):  # from what the actor gives now
            flat = tree_map(lambda x: x.reshape(-1, *x.shape[2:]), obs)
            extra["policy"] = algorithm.actor.predict(flat).reshape(*shape, -1)
        return Batch(obs, chosen, weight=(rng.random(shape) < 0.9).astype(np.float32), extra=extra, settings=settings)
    discount = (0.99 * (rng.random(shape) < 0.9)).astype(np.float32)
    settings["tau"] = np.where(np.arange(updates) % 5 == 4, np.float32(0.5), settings["tau"]).astype(np.float32)
    return Batch(
        obs,
        chosen,
        numbers(),
        discount,
        values(observation, shape, rng),
        weight=rng.uniform(0.2, 1, shape).astype(np.float32),
        noise=algorithm.noise(rng, shape),
        settings=settings,
    )


def first(batch: Batch, updates: int) -> Batch:
    """The first `updates` of a stacked batch."""
    cut: Batch = tree_map(lambda x: x[:updates], batch)
    return cut
