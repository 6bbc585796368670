"""Algorithms and batches with made-up data, for parity tests, contracts and custom tests."""

from __future__ import annotations

from typing import Any

import numpy as np

from tandem import algorithms, backends
from tandem.algorithms.base import Algorithm, Call
from tandem.algorithms.on_policy import OnPolicy
from tandem.algorithms.trpo import TRPO
from tandem.backends.backend import Backend, Network
from tandem.math.masks import masked
from tandem.networks.defaults import Source
from tandem.networks.recurrent import state_size
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
    "active": Leaf("box", (AGENTS,), "int8", (), (0.0,) * AGENTS, (2.0,) * AGENTS),
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
    network: object = None,
    seed: int = 0,
    compile: bool = False,
    devices: int = 1,
    **settings: object,
) -> tuple[Algorithm, Backend]:
    """Return (algorithm, backend) for the algorithm's name, with made-up spaces."""
    chosen = algorithms.get(name).Settings(**settings)
    kind = algorithms.get(name, action)
    how = "yes" if compile else "no"
    backend = backends.make(framework, "cpu", seed=seed, compile=how, devices=devices)
    networks = sources(name, action, observation, network, seed, **settings)
    return kind(backend, networks, observation, action, chosen), backend


def sources(
    name: str,
    action: Leaf,
    observation: Spec = VECTOR,
    network: object = None,
    seed: int = 0,
    **settings: object,
) -> dict[str, Source]:
    """Return the sources of an algorithm's networks, by role."""
    chosen = algorithms.get(name).Settings(**settings)
    kind = algorithms.get(name, action)
    return kind.sources(
        observation,
        action,
        chosen,
        network,
        None,
        lambda n: np.random.default_rng([seed, *n.encode()]),
    )


def values(spec: Spec, shape: tuple[int, ...], rng: np.random.Generator) -> Tree:
    """Sample random elements of a space, [*shape, ...]."""
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
    if spec.dtype == "int8":
        most = np.array(spec.high, np.int8).reshape(spec.shape)
        return rng.integers(most + 1, size=(*shape, *spec.shape)).astype(np.int8)
    low, high = (
        np.asarray(bound, np.float32).reshape(spec.shape) for bound in (spec.low, spec.high)
    )
    return np.clip(rng.standard_normal((*shape, *spec.shape), dtype=np.float32), low, high)


def batches(
    algorithm: Algorithm, observation: Spec, action: Leaf, updates: int, rows: int, seed: int = 0
) -> Batch:
    """Return made-up data for a call of `updates` updates of `rows` rows each, [K, B, ...]; in
    sequences for recurrent algorithms."""
    rng = np.random.default_rng(seed)
    length = algorithm.sequence
    shape = (updates, rows // length, length) if length else (updates, rows)
    if algorithm.needs == "transitions" and length:
        shape = (*shape[:2], algorithm.settings.burn_in + length)
    settings = algorithm.schedule(Call(np.linspace(0, 1, updates), 0, updates, 0))
    if algorithm.settings.noisy != "no":
        settings |= algorithm.backend.noise(
            algorithm.settings.noisy, np.random.default_rng([seed, 1]), updates
        )
    obs, actions = observations(observation, shape, rng), values(action, shape, rng)
    allow(obs, actions, action)
    batch = Batch(obs, actions, settings=settings)
    if algorithm.needs == "sequences":
        return _sequences(algorithm, batch, action, shape, rng)
    if algorithm.needs == "rollouts":
        if algorithm.team:
            return _of_agents(algorithm, batch, rng)
        return _rollouts(algorithm, batch, action, shape, rng)
    allowed = values(action, shape, np.random.default_rng(seed))
    return _transitions(algorithm, batch, observation, action, allowed, rng)


def _sequences(
    algorithm: Any,
    batch: Batch,
    action: Leaf,
    shape: tuple[int, ...],
    rng: np.random.Generator,
) -> Batch:
    """Return steps in order of collection, [K, rows], with several sequences concatenated."""
    updates, rows = shape
    weight = (rng.random(shape) < 0.9).astype(np.float32)
    weight[:, -rows // (algorithm.settings.rollout + 1) :] = 0  # rows after the last steps
    last, behavior_outputs = rng.random(shape) < 0.2, {}
    for name, inner in algorithm.behavior(action).items():
        x = rng.uniform(0.2, 0.8, (*shape, *inner)).astype(np.float32)
        # all probabilities of a distribution, or one log probability
        behavior_outputs[name] = x / x.sum(-1, keepdims=True) if inner else np.log(x)
    cut = (last & (rng.random(shape) < 0.3)).astype(np.float32)
    settings = dict(batch.settings)
    if "tau" in settings:  # a target update is due
        settings["tau"] = (np.arange(updates) % 5 == 4).astype(np.float32)
    importance = rng.uniform(0.5, 1, shape).astype(np.float32)
    states: dict[str, Array] = {}
    if algorithm.settings.recurrent:
        each = updates, rows // (algorithm.settings.rollout + 1)
        states = _recurrent_states(algorithm, each, shape, np.random.default_rng(0))
    return batch._replace(
        reward=_normal(rng, shape),
        discount=np.where(last & (cut == 0), 0, np.float32(0.9)).astype(np.float32),
        weight=weight * importance,
        extra={"last": last, "cut": cut, "valid": weight, **behavior_outputs, **states},
        settings=settings,
    )


def _rollouts(
    algorithm: Algorithm,
    batch: Batch,
    action: Leaf,
    shape: tuple[int, ...],
    rng: np.random.Generator,
) -> Batch:
    """Return rows of rollouts with the results of acting: behavior probabilities and states."""
    extra = {"log_prob": np.log(rng.uniform(0.3, 0.7, shape)).astype(np.float32)}
    extra |= {name: _normal(rng, shape) for name in ("advantage", "return", "value")}
    if algorithm.sequence:
        extra |= _recurrent_states(algorithm, shape[:2], shape, rng)
    curious = algorithm.curiosity if isinstance(algorithm, OnPolicy) else None
    if curious is not None:  # two values, and prediction targets
        both = dict.fromkeys(("return", "value"), (*shape, 2))
        sizes = {"followed": curious.shape, "features": (algorithm.settings.rnd_features,)}
        wide = both | {n: (*shape, *size) for n, size in sizes.items()}
        extra |= {n: _normal(rng, each) for n, each in wide.items()}
        extra["draw"] = rng.random(shape, np.float32)
    if isinstance(algorithm, TRPO):  # from the actor's current outputs
        logits = _outputs(algorithm.actor, batch.obs, extra, shape)
        extra["policy"] = masked(logits, batch.obs, action)
    return batch._replace(weight=(rng.random(shape) < 0.9).astype(np.float32), extra=extra)


def _transitions(
    algorithm: Algorithm,
    batch: Batch,
    observation: Spec,
    action: Leaf,
    allowed: Array,
    rng: np.random.Generator,
) -> Batch:
    """Return transitions of a replay buffer; `allowed` are actions that the masks of the next
    observations allow."""
    shape = allowed.shape[: 3 if algorithm.sequence else 2]
    discount = (0.99 * (rng.random(shape) < 0.9)).astype(np.float32)
    settings = batch.settings
    if "tau" in settings:  # target networks are updated
        tau = np.where(np.arange(shape[0]) % 5 == 4, np.float32(0.5), settings["tau"])
        settings = {**settings, "tau": tau.astype(np.float32)}
    reward, next_obs = _normal(rng, shape), observations(observation, shape, rng)
    extra = {n: np.tanh(values(x, shape, rng)) for n, x in algorithm.buffer_extras(action).items()}
    if algorithm.sequence:
        extra = {n: x[:, :, 0] if n.endswith("_state") else x for n, x in extra.items()}
        extra["start"] = (rng.random(shape) < 0.2).astype(np.float32)
    if algorithm.sees_between and algorithm.settings.n_step > 1:
        extra |= _between(algorithm.settings.n_step, observation, action, shape, rng)
    allow(next_obs, allowed, action)
    return batch._replace(
        reward=reward,
        discount=discount,
        next_obs=next_obs,
        weight=rng.uniform(0.2, 1, shape).astype(np.float32),
        noise=algorithm.loss_noise(
            rng, (*shape[:2], algorithm.sequence) if algorithm.sequence else shape
        ),
        extra=extra,
        settings=settings,
    )


def _between(
    n: int, observation: Spec, action: Leaf, shape: tuple[int, ...], rng: np.random.Generator
) -> dict[str, Tree]:
    """Return the intermediate steps of n-step transitions, some of which are shorter."""
    lead = (*shape, n - 1)
    obs = observations(observation, lead, rng)
    steps = np.arange(1, n)
    discount = np.where(steps < rng.integers(1, n + 1, (*shape, 1)), 0.99**steps, 0.0)
    return {"between": obs, "between_discount": discount.astype(np.float32)}


def _outputs(network: Network, obs: Tree, extra: dict[str, Array], shape: tuple[int, ...]) -> Array:
    """Return the actor's outputs for observations [*shape, ...]: rows [K, B] or sequences [K, S,
    L]."""
    if len(shape) == 2:
        flat = tree_map(lambda x: x.reshape(-1, *x.shape[2:]), obs)
        return network.predict(flat).reshape(*shape, -1)
    updates, count, length = shape

    def rows(x: Array) -> Array:  # time first
        return np.moveaxis(x, 2, 0).reshape(length * updates * count, *x.shape[3:])

    state = extra["actor_state"].reshape(updates * count, -1)
    out = network.predict(
        {"obs": tree_map(rows, obs), "state": state, "start": rows(extra["start"])}
    )[:, : -state.shape[-1]]
    return np.moveaxis(out.reshape(length, updates, count, -1), 0, 2)


def _normal(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.standard_normal(shape, dtype=np.float32)


def _recurrent_states(
    algorithm: Algorithm, lead: tuple[int, ...], shape: tuple[int, ...], rng: np.random.Generator
) -> dict[str, Array]:
    """Return the networks' states at the start of each sequence, [*lead, size], and the flags of
    episode starts, [*shape]."""
    sizes = (*lead, state_size(algorithm.settings))
    roles = dict.fromkeys((*algorithm.acting, *algorithm.preparing))
    states = {
        f"{role}_state": np.tanh(rng.standard_normal(sizes)).astype(np.float32) for role in roles
    }
    return {**states, "start": (rng.random(shape) < 0.2).astype(np.float32)}


def observations(observation: Spec, shape: tuple[int, ...], rng: np.random.Generator) -> Tree:
    """Sample random observations, [*shape, ...]; those of team agents end with their one-hot
    index."""
    obs = values(observation, shape, rng)
    if isinstance(obs, dict) and "agents" in obs:
        agents = obs["agents"].shape[-2]
        obs["agents"][..., -agents:] = np.eye(agents)
    return obs


def _of_agents(algorithm: Any, batch: Batch, rng: np.random.Generator) -> Batch:
    """Return rows [K, B, A, ...] or sequences [K, S, A, L, ...] of a team's agents, from joint
    observations [K, B, ...] or [K, S, L, ...]."""
    actions, agents = batch.action, algorithm.agents
    lead = actions.shape[: 3 if algorithm.sequence else 2]
    rows = algorithm.rows(tree_map(lambda x: x.reshape(-1, *x.shape[len(lead) :]), batch.obs))
    obs = tree_map(lambda x: x.reshape(*lead, agents, *x.shape[1:]), rows)
    if algorithm.sequence:
        obs, actions = tree_map(
            lambda x: np.ascontiguousarray(np.moveaxis(x, 3, 2)), (obs, actions)
        )
    shape = (*lead[:2], agents, *lead[2:])
    extra = {"log_prob": np.log(rng.uniform(0.3, 0.7, shape)).astype(np.float32)}
    extra |= {name: _normal(rng, shape) for name in ("advantage", "return", "value")}
    if algorithm.settings.value_norm != "no":
        extra["scale"] = np.full(shape, 1.5, np.float32)
    if algorithm.settings.rewards == "team":
        extra["acting"] = (rng.random(shape) < 0.8).astype(np.float32)
    if algorithm.sequence:
        extra |= _recurrent_states(algorithm, shape[:3], shape, rng)
    weight = (rng.random(shape) < 0.9).astype(np.float32)
    return batch._replace(obs=obs, action=actions, weight=weight, extra=extra)


def allow(obs: Tree, actions: Array, action: Leaf) -> None:
    """Set the masks of made-up observations, if any, to allow these actions."""
    if action.masked:
        first_choices = np.cumsum((0, *action.sizes))[:-1]
        chosen = actions.reshape(*obs[MASK].shape[:-1], -1) + first_choices
        np.put_along_axis(obs[MASK], chosen.astype(np.int64), 1, -1)


def first(batch: Batch, updates: int) -> Batch:
    """Return the first `updates` updates of a stacked batch."""
    return tree_map(lambda x: x[:updates], batch)
