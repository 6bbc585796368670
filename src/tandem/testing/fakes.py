"""Algorithms on made-up data: what parity and contract suites, and your own tests, feed to a
backend."""

from __future__ import annotations

from typing import Any

import numpy as np

from tandem import algorithms, backends
from tandem.algorithms.base import Call
from tandem.math.masks import masked
from tandem.networks.defaults import Source
from tandem.spaces import MASK, Leaf, Spec
from tandem.types import Array, Batch, Tree, tree_map

VECTOR = Leaf("box", (4,), "float32", (), (-9.0,) * 4, (9.0,) * 4)
DISCRETE = Leaf("discrete", (), "int64", (2,))
MULTI = Leaf("multidiscrete", (2,), "int64", (2, 3))
MASKED = Leaf("discrete", (), "int64", (4,), masked=True)
MASKED_VECTOR = {"obs": VECTOR, MASK: Leaf("multibinary", (4,), "int8")}
BOX = Leaf("box", (2,), "float32", (), (-1.0,) * 2, (1.0,) * 2)
AGENTS = 3
TEAM = {
    "agents": Leaf("box", (AGENTS, 5 + AGENTS), "float32", (), (-9.0,) * 24, (9.0,) * 24),
    "state": Leaf("box", (4,), "float32", (), (-9.0,) * 4, (9.0,) * 4),
    "active": Leaf("multibinary", (AGENTS,), "int8"),
}
MASKED_TEAM = TEAM | {MASK: Leaf("multibinary", (4 * AGENTS,), "int8")}
TEAM_DISCRETE = Leaf("multidiscrete", (AGENTS,), "int64", (4,) * AGENTS)
TEAM_MASKED = Leaf("multidiscrete", (AGENTS,), "int64", (4,) * AGENTS, masked=True)
TEAM_BOX = Leaf("box", (AGENTS, 2), "float32", (), (-1.0,) * 6, (1.0,) * 6)


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
    chosen = algorithms.get(name).Settings(**settings)
    kind = algorithms.get(name).of(action, chosen)
    backend = backends.make(framework, "cpu", seed=seed, compile=compile)
    made = sources(name, action, observation, network, seed, **settings)
    return kind(backend, made, observation, action, chosen), backend


def sources(
    name: str,
    action: Leaf,
    observation: Spec = VECTOR,
    network: Any = None,
    seed: int = 0,
    **settings: Any,
) -> dict[str, Source]:
    """Where the networks of an algorithm of that name come from, by role."""
    chosen = algorithms.get(name).Settings(**settings)
    kind = algorithms.get(name).of(action, chosen)
    found: dict[str, Source] = kind.sources(
        observation,
        action,
        chosen,
        network,
        None,
        lambda n: np.random.default_rng([seed, *n.encode()]),
    )
    return found


def values(spec: Spec, shape: tuple[int, ...], rng: np.random.Generator) -> Tree:
    """Random elements of a space, [*shape, ...]."""
    if isinstance(spec, dict):
        return {k: values(s, shape, rng) for k, s in spec.items()}
    if spec.kind == "discrete":
        return rng.integers(spec.sizes[0], size=shape) + spec.start
    if spec.kind == "multidiscrete":
        return np.stack([rng.integers(n, size=shape) for n in spec.sizes], -1)
    if spec.kind == "multibinary" or spec.dtype == "uint8":
        return rng.integers(
            2 if spec.kind == "multibinary" else 256, size=(*shape, *spec.shape)
        ).astype(spec.dtype)
    low, high = (
        np.asarray(bound, np.float32).reshape(spec.shape) for bound in (spec.low, spec.high)
    )
    return np.clip(rng.standard_normal((*shape, *spec.shape), dtype=np.float32), low, high)


def batches(
    algorithm: Any, observation: Spec, action: Leaf, updates: int, rows: int, seed: int = 0
) -> Batch:
    """Made-up data for a call of `updates` updates of `rows` rows each, [K, B, ...]; of an
    algorithm with a memory, in sequences."""
    rng = np.random.default_rng(seed)
    shape = (
        (updates, rows // algorithm.sequence, algorithm.sequence)
        if algorithm.sequence
        else (updates, rows)
    )
    settings = algorithm.schedule(Call(np.linspace(0, 1, updates), 0, updates, 0))
    if algorithm.settings.noisy != "no":
        settings |= algorithm.backend.noise(
            algorithm.settings.noisy, np.random.default_rng([seed, 1]), updates
        )
    obs, chosen = seen(observation, shape, rng), values(action, shape, rng)
    allow(obs, chosen, action)

    def numbers() -> Array:
        return rng.standard_normal(shape, dtype=np.float32)

    if algorithm.needs == "sequences":
        weight = (rng.random(shape) < 0.9).astype(np.float32)
        weight[:, -rows // (algorithm.settings.rollout + 1) :] = 0  # what follows the last steps
        last, behaviour_outputs = rng.random(shape) < 0.2, {}
        for name, inner in algorithm.behaviour(
            action
        ).items():  # logarithms of probabilities, or all of them
            x = rng.uniform(0.2, 0.8, (*shape, *inner)).astype(np.float32)
            behaviour_outputs[name] = x / x.sum(-1, keepdims=True) if inner else np.log(x)
        cut = (last & (rng.random(shape) < 0.3)).astype(np.float32)
        extra = {"last": last, "cut": cut, "valid": weight, **behaviour_outputs}
        if "tau" in settings:  # a copy that is due
            settings["tau"] = (np.arange(updates) % 5 == 4).astype(np.float32)
        importance = rng.uniform(0.5, 1, shape).astype(np.float32)
        discount = np.where(last & (cut == 0), 0, np.float32(0.9)).astype(np.float32)
        return Batch(
            obs,
            chosen,
            numbers(),
            discount,
            weight=weight * importance,
            extra=extra,
            settings=settings,
        )
    if algorithm.needs == "rollouts" and hasattr(algorithm, "agents"):
        return _of_agents(algorithm, obs, chosen, settings, rng)
    if algorithm.needs == "rollouts":
        old = np.log(rng.uniform(0.3, 0.7, shape)).astype(np.float32)
        extra = {"log_prob": old, "advantage": numbers(), "return": numbers(), "value": numbers()}
        if algorithm.sequence:
            units = (*shape[:2], algorithm.settings.recurrent)
            extra |= {
                f"{n}_state": np.tanh(rng.standard_normal(units)).astype(np.float32)
                for n in ("actor", "critic")
            }
            extra["start"] = (rng.random(shape) < 0.2).astype(np.float32)
        if hasattr(algorithm, "divergence"):  # from what the actor gives now
            flat = tree_map(lambda x: x.reshape(-1, *x.shape[2:]), obs)
            extra["policy"] = masked(algorithm.actor.predict(flat).reshape(*shape, -1), obs, action)
        return Batch(
            obs,
            chosen,
            weight=(rng.random(shape) < 0.9).astype(np.float32),
            extra=extra,
            settings=settings,
        )
    discount = (0.99 * (rng.random(shape) < 0.9)).astype(np.float32)
    settings["tau"] = np.where(
        np.arange(updates) % 5 == 4, np.float32(0.5), settings["tau"]
    ).astype(np.float32)
    reward, after = numbers(), seen(observation, shape, rng)
    extra = {n: np.tanh(values(x, shape, rng)) for n, x in algorithm.buffer_extras(action).items()}
    if algorithm.sequence:
        extra = {n: x[:, :, 0] if n.endswith("_state") else x for n, x in extra.items()}
        extra["start"] = (rng.random(shape) < 0.2).astype(np.float32)
    allow(after, values(action, shape, np.random.default_rng(seed)), action)
    return Batch(
        obs,
        chosen,
        reward,
        discount,
        after,
        weight=rng.uniform(0.2, 1, shape).astype(np.float32),
        noise=algorithm.noise(rng, shape),
        extra=extra,
        settings=settings,
    )


def seen(observation: Spec, shape: tuple[int, ...], rng: np.random.Generator) -> Tree:
    """Random observations; the agents of a team are told who they are."""
    found = values(observation, shape, rng)
    if isinstance(found, dict) and "agents" in found:
        agents = found["agents"].shape[-2]
        found["agents"][..., -agents:] = np.eye(agents)
    return found


def _of_agents(
    algorithm: Any, obs: Tree, chosen: Array, settings: dict[str, Any], rng: np.random.Generator
) -> Batch:
    """Rows [K, B, A, ...] of a team's agents, or sequences [K, S, A, L, ...], of observations [K,
    B, ...] or [K, S, L, ...]."""
    agents, lead = algorithm.agents, chosen.shape[: 3 if algorithm.sequence else 2]
    rows = algorithm.rows(tree_map(lambda x: x.reshape(-1, *x.shape[len(lead) :]), obs))
    obs = tree_map(lambda x: x.reshape(*lead, agents, *x.shape[1:]), rows)
    if algorithm.sequence:
        obs, chosen = tree_map(lambda x: np.ascontiguousarray(np.moveaxis(x, 3, 2)), (obs, chosen))
    shape = (*lead[:2], agents, *lead[2:])
    names = ("advantage", "return", "value")
    extra = {"log_prob": np.log(rng.uniform(0.3, 0.7, shape)).astype(np.float32)}
    extra |= {n: rng.standard_normal(shape, dtype=np.float32) for n in names}
    if algorithm.settings.value_norm != "no":
        extra["scale"] = np.full(shape, 1.5, np.float32)
    if algorithm.settings.rewards == "team":
        extra["acting"] = (rng.random(shape) < 0.8).astype(np.float32)
    if algorithm.sequence:
        units = (*shape[:3], algorithm.settings.recurrent)
        extra |= {
            f"{n}_state": np.tanh(rng.standard_normal(units)).astype(np.float32)
            for n in ("actor", "critic")
        }
        extra["start"] = (rng.random(shape) < 0.2).astype(np.float32)
    return Batch(
        obs,
        chosen,
        weight=(rng.random(shape) < 0.9).astype(np.float32),
        extra=extra,
        settings=settings,
    )


def allow(obs: Tree, chosen: Array, action: Leaf) -> None:
    """Makes the masks of made-up observations allow these actions, where there are masks."""
    if action.masked:
        first_choices = np.cumsum((0, *action.sizes))[:-1]
        np.put_along_axis(
            obs[MASK],
            (chosen.reshape(*chosen.shape[:2], -1) + first_choices).astype(np.int64),
            1,
            -1,
        )


def first(batch: Batch, updates: int) -> Batch:
    """The first `updates` of a stacked batch."""
    cut: Batch = tree_map(lambda x: x[:updates], batch)
    return cut
