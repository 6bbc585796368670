"""The least time that a run could take: its environment steps and its matrix products, with nothing
around them."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from time import perf_counter
from typing import Any

import numpy as np

# of each timing, at least: short, so that some of them fall between the turns of other processes
SECONDS = 1e-3
REPEATS = 40  # of which the quickest counts: everything else on the machine can only add to it
MOST = 4_096  # rows of a product that is timed
UNIT = 16  # the fewest calls of a timing


def bare(job: dict[str, Any]) -> dict[str, float]:
    """Seconds per environment step: {"environment", "products"}."""
    step = native_step if job["native"] else plain_step
    return {
        "environment": step(job["env"], job["envs"]),
        "products": sum(often * product(m, k, n) for m, k, n, often in job["products"]),
    }


def native_step(env: str, n: int) -> float:
    """Of the environment's own vector of n; its resets are part of its steps."""
    import gymnasium

    from tandem.envs import atari

    if atari.is_atari(env):
        envs = atari.vector(env, n, {"life_loss_ends": True})
    else:
        envs = gymnasium.make_vec(env, n, vectorization_mode="vector_entry_point")
    envs.action_space.seed(0)
    actions = [envs.action_space.sample() for _ in range(256)]
    envs.reset(seed=0)

    def play(calls: int) -> None:
        for i in range(calls):
            envs.step(actions[i % 256])

    return quickest(play) / n


def plain_step(env: str, n: int) -> float:
    """Of one environment; its resets are left out, since a policy that has learned hardly needs
    any."""
    import gymnasium

    made = gymnasium.make(env, disable_env_checker=True)
    made.action_space.seed(0)
    actions = [made.action_space.sample() for _ in range(256)]
    made.reset(seed=0)
    resets = 0

    def play(calls: int) -> None:
        nonlocal resets
        resets = 0
        for i in range(calls):
            _, _, terminated, truncated, _ = made.step(actions[i % 256])
            if terminated or truncated:
                made.reset()
                resets += 1

    def reset(calls: int) -> None:
        for _ in range(calls):
            made.reset()

    play(10_000)
    share = resets / 10_000
    return max(0.0, quickest(play) - share * quickest(reset))


@lru_cache
def product(m: int, k: int, n: int) -> float:
    """Seconds of [m, k] @ [k, n] in float32 by whichever of NumPy and XLA is quicker."""
    if m > MOST or k > MOST:  # a convolution's, over all places of a batch: as so many smaller ones
        return product(min(m, MOST), min(k, MOST), n) * (m / min(m, MOST)) * (k / min(k, MOST))
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
    out = np.empty((m, n), np.float32)

    def by_numpy(calls: int) -> None:
        for _ in range(calls):
            np.matmul(a, b, out=out)

    return min(quickest(by_numpy), quickest(_by_xla(a, b)))


def _by_xla(a: Any, b: Any) -> Callable[[int], None]:
    """Products in a loop inside one call, so that calling it costs next to nothing."""
    import jax
    from jax import lax

    jax.config.update("jax_cpu_enable_async_dispatch", False)
    many = UNIT
    stacked = np.stack([a] * many)

    run = jax.jit(lambda stacked, b: lax.scan(lambda carry, x: (carry, x @ b), 0, stacked)[1])

    def play(calls: int) -> None:
        for _ in range(max(1, calls // many)):
            run(stacked, b).block_until_ready()

    return play


def quickest(play: Callable[[int], None], unit: int = UNIT) -> float:
    """Seconds of one call among many: play(n) makes n of them."""
    play(unit)
    calls = unit
    while _timed(play, calls) < SECONDS:
        calls *= 2
    return min(_timed(play, calls) for _ in range(REPEATS)) / calls


def _timed(play: Callable[[int], None], calls: int) -> float:
    began = perf_counter()
    play(calls)
    return perf_counter() - began
