"""Running statistics of observations and rewards in the carry of a compiled run: float32 versions
of `learning.normalization`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tandem.learning.normalization import ObservationMoments
from tandem.math.moments import merged
from tandem.spaces import Spec
from tandem.types import Array, Trajectory, Tree


class Statistics(NamedTuple):
    """See `math.moments.Moments`."""

    mean: Array  # [width]
    variance: Array  # [width]
    count: Array

    def add(self, rows: Array) -> Statistics:
        """Return the statistics updated with rows [M, width]."""
        return Statistics(*merged(self.mean, self.variance, self.count, rows))


def new(width: int) -> Statistics:
    """Return the statistics of no rows."""
    return Statistics(jnp.zeros(width), jnp.ones(width), jnp.float32(0))


class Observations:
    """Statistics with which networks' first layers standardize observations of this Spec."""

    def __init__(self, spec: Spec) -> None:
        self._host = ObservationMoments(spec)

    def begin(self) -> Tree:
        return {key: new(len(m.mean)) for key, m in self._host.moments.items()}

    def add(self, kept: Tree, obs: Tree) -> Tree:
        """Return the statistics updated with observations [T, N, ...]."""
        rows = {key: obs[key] if key else obs for key in kept}
        return {
            key: one.add(rows[key].astype(jnp.float32).reshape(-1, len(one.mean)))
            for key, one in kept.items()
        }

    def publish(self, kept: Tree, networks: Iterable[Any]) -> None:
        """Write the statistics to the networks, whose variables hold traced values by then."""
        for key, one in kept.items():
            moments: Any = self._host.moments[key]
            moments.mean, moments.variance, moments.count = one
        for network in networks:
            network.place(self._host.weights())


class CompiledRewardScale:
    """See `normalization.RewardScale`."""

    def __init__(self, envs: int, gamma: float) -> None:
        self.envs, self.gamma = envs, gamma

    def begin(self) -> Tree:
        return new(1), jnp.zeros(self.envs)

    def __call__(self, kept: Tree, t: Trajectory) -> tuple[Tree, Trajectory]:
        statistics, running = kept

        def step(running: Array, x: tuple[Array, Array]) -> Any:
            reward, last = x
            running = running * self.gamma + reward
            return jnp.where(last, 0.0, running), running

        running, seen = jax.lax.scan(step, running, (t.reward, t.last))
        statistics = statistics.add(seen.reshape(-1, 1))
        return (statistics, running), t._replace(reward=_clipped(t.reward, statistics))


class CompiledRewardStandard:
    """See `normalization.RewardStandard`."""

    def begin(self) -> Tree:
        return new(1)

    def __call__(self, kept: Tree, t: Trajectory) -> tuple[Tree, Trajectory]:
        kept = kept.add(t.reward.reshape(-1, 1))
        return kept, t._replace(reward=_clipped(t.reward - kept.mean[0], kept))


def _clipped(reward: Array, statistics: Statistics) -> Array:
    return jnp.clip(reward / jnp.sqrt(statistics.variance[0] + 1e-8), -10.0, 10.0)
