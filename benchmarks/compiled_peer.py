"""PPO for CartPole as a single-file program for JAX writes it: flax, optax, and a scan over rollout
and updates; environments reset themselves within a step. The settings are those of our rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax.linen.initializers import constant, orthogonal

from tandem.envs.jax.worlds import CartPole

Tree = Any


class ActorCritic(nn.Module):
    """Two networks of 64-64 units."""

    @nn.compact
    def __call__(self, obs: Any) -> tuple[Any, Any]:
        outs = []
        for width, gain in ((2, 0.01), (1, 1.0)):
            x = obs
            for _ in range(2):
                first = orthogonal(2**0.5)
                x = nn.tanh(nn.Dense(64, kernel_init=first, bias_init=constant(0.0))(x))
            outs.append(nn.Dense(width, kernel_init=orthogonal(gain), bias_init=constant(0.0))(x))
        return outs[0], outs[1][..., 0]


def program(
    envs: int,
    rollout: int,
    batch_size: int,
    epochs: int,
    steps: int,
    rate: float,
    gamma: float,
    trace: float,
    clip: float,
) -> tuple[Callable[[int], Tree], Callable[[Tree, int], tuple[Tree, Tree]]]:
    """(seed -> state, (state, how many rollouts) -> (state, returns of episodes that ended))."""
    env, net, rows = CartPole(), ActorCritic(), envs * rollout
    batches = rows // batch_size
    total = steps // rows * epochs * batches
    optimizer = optax.chain(
        optax.clip_by_global_norm(0.5),
        optax.adam(optax.linear_schedule(rate, 0.0, total), eps=1e-5),
    )

    def move(key: Any, now: Tree, action: Any) -> tuple[Tree, Any, Any, Any]:
        state, length, score = now
        one, other = jax.random.split(key)
        seen = env.step(one, state, action)
        first, _ = env.reset(other)
        length, score = length + 1, score + seen.reward
        done = seen.terminated | (length >= env.max_episode_steps)
        state = jnp.where(done, first, seen.state)
        fresh = (state, jnp.where(done, 0, length), jnp.where(done, 0.0, score))
        return fresh, seen.reward, done, jnp.where(done, score, jnp.nan)

    def log_prob(logits: Any, action: Any) -> Any:
        return jnp.take_along_axis(jax.nn.log_softmax(logits), action[..., None], -1)[..., 0]

    def begin(seed: int) -> Tree:
        key, a, b = jax.random.split(jax.random.key(seed), 3)
        params = net.init(a, jnp.zeros(4))
        state, _ = jax.vmap(env.reset)(jax.random.split(b, envs))
        now = state, jnp.zeros(envs, jnp.int32), jnp.zeros(envs)
        return params, optimizer.init(params), now, key

    def loss(params: Tree, batch: Tree) -> Any:
        obs, action, before, advantage, target = batch
        logits, value = net.apply(params, obs)
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        ratio = jnp.exp(log_prob(logits, action) - before)
        clipped = jnp.clip(ratio, 1 - clip, 1 + clip) * advantage
        gain = jnp.minimum(ratio * advantage, clipped).mean()
        return 0.5 * jnp.square(value - target).mean() - gain

    def update(carry: Tree, batch: Tree) -> tuple[Tree, Any]:
        params, state = carry
        gradient = jax.grad(loss)(params, batch)
        change, state = optimizer.update(gradient, state)
        return (optax.apply_updates(params, change), state), ()

    def block(carry: Tree, _: Any) -> tuple[Tree, Any]:
        params, state, now, key = carry

        def act(carry: Tree, _: Any) -> tuple[Tree, Tree]:
            now, key = carry
            key, a, b = jax.random.split(key, 3)
            logits, value = net.apply(params, now[0])
            action = jax.random.categorical(a, logits)
            after, reward, done, score = jax.vmap(move)(jax.random.split(b, envs), now, action)
            row = (now[0], action, log_prob(logits, action), value, reward, done)
            return (after, key), (row, score)

        (now, key), (seen, scores) = jax.lax.scan(act, (now, key), None, rollout)
        obs, action, before, value, reward, done = seen
        last = net.apply(params, now[0])[1]

        def back(carry: Tree, x: Tree) -> tuple[Tree, Any]:
            advantage, following = carry
            value, reward, done = x
            delta = reward + gamma * following * (1 - done) - value
            advantage = delta + gamma * trace * (1 - done) * advantage
            return (advantage, value), advantage

        first = jnp.zeros(envs), last
        _, advantage = jax.lax.scan(back, first, (value, reward, done), reverse=True, unroll=16)
        data = (obs, action, before, advantage, advantage + value)
        flat = jax.tree.map(lambda x: x.reshape(rows, *x.shape[2:]), data)

        def epoch(carry: Tree, key: Any) -> tuple[Tree, Any]:
            order = jax.random.permutation(key, rows)
            parts = jax.tree.map(lambda x: x[order].reshape(batches, -1, *x.shape[1:]), flat)
            return jax.lax.scan(update, carry, parts)

        key, drawn = jax.random.split(key)
        shuffles = jax.random.split(drawn, epochs)
        (params, state), _ = jax.lax.scan(epoch, (params, state), shuffles)
        return (params, state, now, key), scores

    run = jax.jit(
        lambda carry, count: jax.lax.scan(block, carry, None, count),
        static_argnums=1,
        donate_argnums=0,
    )
    return begin, run
