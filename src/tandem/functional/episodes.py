"""Episodes of N functional environments: time limits, returns, and new beginnings where they end.
Pure functions, to be traced."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tandem.functional.protocol import FunctionalEnv, TimeStep
from tandem.types import Array, Tree


class Episodes(NamedTuple):
    """The episodes under way."""

    state: Tree  # [N, ...]
    obs: Tree  # [N, ...]  what to act on next
    score: Array  # float32 [N]  the rewards so far, added up
    length: Array  # int32 [N]  the steps so far
    pool: Tree = ()  # (states [R, ...], observations [R, ...]) to begin with, if costly


class StepResult(NamedTuple):
    """Results of one step of all of them."""

    obs: Tree  # [N, ...]  what was seen after it, before any new beginning
    reward: Array  # float32 [N]
    terminated: Array  # bool [N]
    last: Array  # bool [N]  the episode ended, either way
    score: Array  # float32 [N]  of the episode up to here
    length: Array  # int32 [N]


def begin(env: FunctionalEnv, key: Array, n: int) -> Episodes:
    """The first episodes of n environments."""
    size = getattr(env, "reset_pool", 0)
    first, pool = jax.random.split(key)
    made = jax.vmap(env.reset)(jax.random.split(pool, size)) if size else ()
    state, obs = _beginnings(env, first, n, made)
    return Episodes(state, obs, jnp.zeros(n), jnp.zeros(n, jnp.int32), made)


def step(
    env: FunctionalEnv, key: Array, episodes: Episodes, action: Array
) -> tuple[Episodes, StepResult]:
    """Takes actions [N, ...]. An episode that ends is followed by the next one's beginning."""
    n = len(episodes.length)
    first, moving = jax.random.split(key)
    seen, outcome = move(env, jax.random.split(moving, n), episodes, action)
    last = outcome.last

    def begun() -> tuple[Tree, Tree]:
        new = _beginnings(env, first, n, episodes.pool)
        return where(last, new, (seen.state, seen.obs))

    # where none ends, which is most often, no beginning is computed
    state, obs = jax.lax.cond(last.any(), begun, lambda: (seen.state, seen.obs))
    return _continued(seen, last, state, obs), outcome


def move(
    env: FunctionalEnv,
    keys: Array,
    episodes: Episodes,
    action: Array,
    limit: Array | None = None,
) -> tuple[Episodes, StepResult]:
    """Takes actions [N, ...] by keys [N]. Episodes that end stay where they ended.

    limit: they are cut after so many steps; None: after the environment's `max_episode_steps`."""
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
    """Begins new episodes by keys [N] where `over` [N]."""
    new = beginnings(env, keys, episodes.pool)
    state, obs = where(over, new, (episodes.state, episodes.obs))
    return _continued(episodes, over, state, obs)


def beginnings(env: FunctionalEnv, keys: Array, pool: Tree = ()) -> tuple[Tree, Tree]:
    """(states, observations) of the beginnings of episodes, each by its key of keys [N]."""
    if not pool:
        return jax.vmap(env.reset)(keys)
    size = len(jax.tree.leaves(pool)[0])
    at = jax.vmap(lambda key: jax.random.randint(key, (), 0, size))(keys)
    return jax.tree.map(lambda x: x[at], pool)


def _continued(episodes: Episodes, last: Array, state: Tree, obs: Tree) -> Episodes:
    score = jnp.where(last, 0.0, episodes.score)
    return Episodes(state, obs, score, jnp.where(last, 0, episodes.length), episodes.pool)


def where(flag: Array, x: Tree, y: Tree) -> Tree:
    """Rows of x where flag [N], of y elsewhere. Trees as JAX has them."""

    def one(a: Any, b: Any) -> Any:
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(
                one(jax.random.key_data(a), jax.random.key_data(b)), impl=jax.random.key_impl(a)
            )
        return jnp.where(flag.reshape(-1, *(1,) * (a.ndim - 1)), a, b)

    return jax.tree.map(one, x, y)


def _beginnings(env: FunctionalEnv, key: Array, n: int, pool: Tree) -> tuple[Tree, Tree]:
    """(states, observations) of n episodes' beginnings."""
    if not pool:
        return jax.vmap(env.reset)(jax.random.split(key, n))
    size = len(jax.tree.leaves(pool)[0])
    at = jax.random.randint(key, (n,), 0, size)
    return jax.tree.map(lambda x: x[at], pool)
