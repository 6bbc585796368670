"""Distributions with state-dependent noise: generalized state-dependent exploration, gSDE (Raffin
et al. 2021, arXiv:2005.05719)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tandem import ops
from tandem.math.distributions import Density, Gaussian, Normal, TanhGaussian
from tandem.types import Array


@dataclass(frozen=True)
class StateDependentNoise(Normal):
    """Noise that is a function of the state: the network's features times a random matrix, which is
    kept for `sample_freq` steps, or with -1 for all steps collected at once (generalized
    state-dependent exploration, gSDE: Raffin et al. 2021, arXiv:2005.05719, section 4).

    `noise` samples the seeds of these matrices, since their size is only known from the network's
    output.
    """

    sample_freq: int = -1

    @property
    def width(self) -> int:
        return 0

    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        """Sample the seed of each step's matrix, int64; shape: [T, ...]."""
        steps = shape[0]
        every = min(self.sample_freq, steps) if self.sample_freq > 0 else steps
        seeds = rng.integers(2**62, size=(-(-steps // every), *shape[1:]))
        return np.repeat(seeds, every, axis=0)[:steps]

    def drawn(self, features: int, noise: Array) -> Array:
        """Return standard normal matrices [*noise.shape, features, size] from these seeds."""
        return _matrices(noise.tobytes(), noise.shape, features, self.size)


@lru_cache(64)  # the same seeds recur step after step
def _matrices(seeds: bytes, shape: tuple[int, ...], features: int, size: int) -> Array:
    drawn = [
        np.random.Generator(np.random.Philox(key=seed)).standard_normal(
            (features, size), dtype=np.float32
        )
        for seed in np.frombuffer(seeds, np.int64)
    ]
    return np.reshape(drawn, (*shape, features, size))


@dataclass(frozen=True)
class StateDependentGaussian(StateDependentNoise, Density):
    """Normal distribution over `size` numbers with state-dependent noise, from means and the terms
    [features * size] whose sum is the noise (`networks.policy_layers.StateDependent`). The losses
    use its marginal Gaussian at each state (eq. 7)."""

    def gaussian(self, out: Array) -> Array:
        """Return means and log standard deviations, [..., 2 size]."""
        return ops.of(out).concat([out[..., : self.size], self.log_std(out)], -1)

    def log_std(self, out: Array) -> Array:
        """Return the log standard deviations [..., size]."""
        xp, parts = ops.of(out), self._parts(out)
        return 0.5 * xp.log(xp.sum(parts * parts, -2) + 1e-6)

    def _parts(self, out: Array) -> Array:
        features = out.shape[-1] // self.size - 1
        shape = (-1, *out.shape[1:-1], features, self.size)
        return ops.of(out).reshape(out[..., self.size :], shape)

    def offset(self, out: Array, noise: Array) -> Array:
        """Return the noise of actions, [..., size]; NumPy only."""
        parts = self._parts(out)
        return (parts * self.drawn(parts.shape[-2], noise)).sum(-2)

    def sample(self, out: Array, noise: Array) -> Array:
        return out[..., : self.size] + self.offset(out, noise)

    def log_prob(self, out: Array, action: Array) -> Array:
        return Gaussian(self.size).log_prob(self.gaussian(out), action)

    def entropy(self, out: Array) -> Array:
        return Gaussian(self.size).entropy(self.gaussian(out))

    def kl(self, old: Array, out: Array) -> Array:
        return Gaussian(self.size).kl(self.gaussian(old), self.gaussian(out))


@dataclass(frozen=True)
class StateDependentTanh(TanhGaussian):
    """tanh of a normal distribution with state-dependent noise, from the same output."""

    sample_freq: int = -1

    @property
    def inner(self) -> StateDependentGaussian:
        """Distribution before the tanh."""
        return StateDependentGaussian(self.size, self.sample_freq)

    @property
    def width(self) -> int:
        return 0

    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return self.inner.noise(rng, shape)

    def sample(self, out: Array, noise: Array) -> Array:
        return np.tanh(self.inner.sample(out, noise))

    def log_std(self, out: Array) -> Array:
        return self.inner.log_std(out)


@dataclass(frozen=True)
class StateDependentDeterministic(StateDependentNoise):
    """Deterministic actions in [-1, 1], the first numbers of the output. For exploration, a random
    matrix times the remaining features, scaled to unit length, is added: noise whose standard
    deviation is `std` in every state."""

    std: float = 0.1

    action_mode = "unit"

    def sample(self, out: Array, noise: Array) -> Array:
        features = out[..., self.size :]
        length = np.sqrt((features * features).sum(-1, keepdims=True))
        drawn = self.drawn(features.shape[-1], noise)
        offset = (features[..., None, :] @ drawn)[..., 0, :] / np.maximum(length, 1e-8)
        return np.clip(out[..., : self.size] + np.float32(self.std) * offset, -1.0, 1.0)
