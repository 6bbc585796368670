"""Episodes of N functional environments: time limits, returns and resets, as pure functions for
tracing."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tandem.envs.jax.protocol import FunctionalEnv, TimeStep
from tandem.types import Array, Tree


class Episodes(NamedTuple):
    """State of the running episodes."""

    state: Tree  # [N, ...]
    obs: Tree  # [N, ...]  observations to act on next
    score: Array  # float32 [N]  sum of the rewards so far
    length: Array  # int32 [N]  number of steps so far
    pool: Tree = ()  # initial (states [R, ...], observations [R, ...]), if resets are expensive


class StepResult(NamedTuple):
    """Results of one step of all environments."""

    obs: Tree  # [N, ...]  observations after the step, before any reset
    reward: Array  # float32 [N]
    terminated: Array  # bool [N]
    last: Array  # bool [N]  the episode terminated or was truncated
    score: Array  # float32 [N]  return of the episode up to here
    length: Array  # int32 [N]


def begin(env: FunctionalEnv, key: Array, n: int) -> Episodes:
    """Start the first episodes of n environments."""
    size = getattr(env, "reset_pool", 0)
    first, pool = jax.random.split(key)
    made = jax.vmap(env.reset)(jax.random.split(pool, size)) if size else ()
    state, obs = _beginnings(env, first, n, made)
    return Episodes(state, obs, jnp.zeros(n), jnp.zeros(n, jnp.int32), made)


def step(
    env: FunctionalEnv, key: Array, episodes: Episodes, action: Array
) -> tuple[Episodes, StepResult]:
    """Step with actions [N, ...]. Ended episodes are followed by new ones in the same step."""
    n = len(episodes.length)
    first, moving = jax.random.split(key)
    seen, outcome = move(env, jax.random.split(moving, n), episodes, action)
    last = outcome.last

    def begun() -> tuple[Tree, Tree]:
        new = _beginnings(env, first, n, episodes.pool)
        return where(last, new, (seen.state, seen.obs))

    # skip the resets if no episode ended, which is the usual case
    state, obs = jax.lax.cond(last.any(), begun, lambda: (seen.state, seen.obs))
    return _continued(seen, last, state, obs), outcome


def move(
    env: FunctionalEnv,
    keys: Array,
    episodes: Episodes,
    action: Array,
    limit: Array | None = None,
) -> tuple[Episodes, StepResult]:
    """Step with actions [N, ...] and keys [N], without resetting ended episodes.

    limit: step limit of episodes; None: the environment's `max_episode_steps`."""
    seen = TimeStep(*jax.vmap(env.step)(keys, episodes.state, action))
    reward = jnp.asarray(seen.reward, jnp.float32)
    length, score = episodes.length + 1, episodes.score + reward
    terminated = jnp.asarray(seen.terminated, bool)
    last = terminated | jnp.asarray(seen.truncated, bool)
    if limit is not None or env.max_episode_steps:
        last = last | (length >= (env.max_episode_steps if limit is None else limit))
    after = Episodes(seen.state, seen.obs, score, length, episodes.pool)
    return after, StepResult(seen.obs, reward, terminated, last, score, length)


def renew(env: FunctionalEnv, keys: Array, episodes: Episodes, over: Array) -> Episodes:
    """Start new episodes with keys [N] where `over` [N]."""
    new = beginnings(env, keys, episodes.pool)
    state, obs = where(over, new, (episodes.state, episodes.obs))
    return _continued(episodes, over, state, obs)


def beginnings(env: FunctionalEnv, keys: Array, pool: Tree = ()) -> tuple[Tree, Tree]:
    """Return initial (states, observations) of episodes, one per key in keys [N]."""
    if not pool:
        return jax.vmap(env.reset)(keys)
    size = len(jax.tree.leaves(pool)[0])
    at = jax.vmap(lambda key: jax.random.randint(key, (), 0, size))(keys)
    return jax.tree.map(lambda x: x[at], pool)


def _continued(episodes: Episodes, last: Array, state: Tree, obs: Tree) -> Episodes:
    score = jnp.where(last, 0.0, episodes.score)
    return Episodes(state, obs, score, jnp.where(last, 0, episodes.length), episodes.pool)


def where(flag: Array, x: Tree, y: Tree) -> Tree:
    """Select rows of x where flag [N], of y elsewhere. x and y are JAX pytrees."""

    def one(a: Any, b: Any) -> Any:
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(
                one(jax.random.key_data(a), jax.random.key_data(b)), impl=jax.random.key_impl(a)
            )
        return jnp.where(flag.reshape(-1, *(1,) * (a.ndim - 1)), a, b)

    return jax.tree.map(one, x, y)


def _beginnings(env: FunctionalEnv, key: Array, n: int, pool: Tree) -> tuple[Tree, Tree]:
    """Return initial (states, observations) of n episodes."""
    if not pool:
        return jax.vmap(env.reset)(jax.random.split(key, n))
    size = len(jax.tree.leaves(pool)[0])
    at = jax.random.randint(key, (n,), 0, size)
    return jax.tree.map(lambda x: x[at], pool)
