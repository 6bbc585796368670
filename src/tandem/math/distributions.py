"""Distributions over actions as functions of a network's output and of noise that was drawn outside: pure, so that a loss is a
function of its batch, and one seed gives the same actions on every engine.

Every distribution has `width` (how many numbers the network gives), `noise(rng, shape)` (what a sample needs), `sample(out,
noise)`, `mode(out)`, `log_prob(out, action)`, `entropy(out)` and `kl(old, out)`, the divergence KL(old || new); outputs are
[..., width], log_prob, entropy and kl are [...].
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from math import e, log, pi
from typing import Any

import numpy as np

from tandem import ops
from tandem.spaces import Leaf
from tandem.types import Array

HALF_LOG_2PI = 0.5 * log(2 * pi)


@dataclass(frozen=True)
class Categorical:
    """One of `n` choices, from logits [..., n]."""

    n: int

    @property
    def width(self) -> int:
        return self.n

    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        """Gumbel noise: the argmax of logits plus it is a sample (Maddison et al. 2014, arXiv:1411.0030)."""
        return -np.log(rng.standard_exponential((*shape, self.n), dtype=np.float32) + np.float32(1e-30))

    def sample(self, out: Array, noise: Array) -> Array:
        return ops.of(out).argmax(out + noise, -1)

    def mode(self, out: Array) -> Array:
        return ops.of(out).argmax(out, -1)

    def log_prob(self, out: Array, action: Array) -> Array:
        xp = ops.of(out)
        return xp.take(xp.log_softmax(out), action)

    def entropy(self, out: Array) -> Array:
        xp = ops.of(out)
        log_p = xp.log_softmax(out)
        return -xp.sum(xp.exp(log_p) * log_p, -1)

    def kl(self, old: Array, out: Array) -> Array:
        xp = ops.of(out)
        log_old = xp.log_softmax(old)
        return xp.sum(xp.exp(log_old) * (log_old - xp.log_softmax(out)), -1)


@dataclass(frozen=True)
class MultiCategorical:
    """One of `sizes[i]` choices at each position i, independently, from all their logits side by side.
    Actions are [..., len(sizes)]."""

    sizes: tuple[int, ...]

    @property
    def width(self) -> int:
        return sum(self.sizes)

    def _parts(self, x: Array) -> list[tuple[Categorical, Array]]:
        ends = accumulate(self.sizes)
        return [(Categorical(n), x[..., end - n : end]) for n, end in zip(self.sizes, ends, strict=True)]

    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return Categorical(self.width).noise(rng, shape)

    def sample(self, out: Array, noise: Array) -> Array:
        return self.mode(out + noise)

    def mode(self, out: Array) -> Array:
        return ops.of(out).stack([d.mode(logits) for d, logits in self._parts(out)], -1)

    def log_prob(self, out: Array, action: Array) -> Array:
        return _total(d.log_prob(logits, action[..., i]) for i, (d, logits) in enumerate(self._parts(out)))

    def entropy(self, out: Array) -> Array:
        return _total(d.entropy(logits) for d, logits in self._parts(out))

    def kl(self, old: Array, out: Array) -> Array:
        pairs = zip(self._parts(old), self._parts(out), strict=True)
        return _total(d.kl(before, after) for (d, before), (_, after) in pairs)


@dataclass(frozen=True)
class Gaussian:
    """A normal distribution with diagonal covariance over `size` numbers, from means and log standard deviations."""

    size: int

    @property
    def width(self) -> int:
        return 2 * self.size

    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return rng.standard_normal((*shape, self.size), dtype=np.float32)

    def sample(self, out: Array, noise: Array) -> Array:
        return out[..., : self.size] + ops.of(out).exp(out[..., self.size :]) * noise

    def mode(self, out: Array) -> Array:
        return out[..., : self.size]

    def log_prob(self, out: Array, action: Array) -> Array:
        xp = ops.of(out)
        mean, log_std = out[..., : self.size], out[..., self.size :]
        z = (action - mean) * xp.exp(-log_std)
        return xp.sum(-0.5 * z * z - log_std - HALF_LOG_2PI, -1)

    def entropy(self, out: Array) -> Array:
        return ops.of(out).sum(out[..., self.size :] + 0.5 * log(2 * pi * e), -1)

    def kl(self, old: Array, out: Array) -> Array:
        xp, n = ops.of(out), self.size
        far = (old[..., :n] - out[..., :n]) ** 2
        apart = out[..., n:] - old[..., n:]
        return xp.sum(apart + 0.5 * (xp.exp(-2.0 * apart) + far * xp.exp(-2.0 * out[..., n:])) - 0.5, -1)


@dataclass(frozen=True)
class Spherical:
    """A normal distribution over `size` numbers with one variance for all of them, from means and the number whose softplus, at
    least 1e-4, is that variance (Mnih et al. 2016, arXiv:1602.01783, supplement, section 9)."""

    size: int

    @property
    def width(self) -> int:
        return self.size + 1

    def variance(self, out: Array) -> Array:
        """[...]"""
        xp = ops.of(out)
        return xp.clip(xp.softplus(out[..., self.size]), 1e-4, float("inf"))

    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return rng.standard_normal((*shape, self.size), dtype=np.float32)

    def sample(self, out: Array, noise: Array) -> Array:
        return out[..., : self.size] + ops.of(out).sqrt(self.variance(out))[..., None] * noise

    def mode(self, out: Array) -> Array:
        return out[..., : self.size]

    def log_prob(self, out: Array, action: Array) -> Array:
        xp, variance = ops.of(out), self.variance(out)
        far = xp.sum((action - out[..., : self.size]) ** 2, -1)
        return -0.5 * (far / variance + self.size * xp.log(2 * pi * variance))

    def entropy(self, out: Array) -> Array:
        return 0.5 * self.size * ops.of(out).log(2 * pi * e * self.variance(out))

    def kl(self, old: Array, out: Array) -> Array:
        xp, n = ops.of(out), self.size
        before, after = self.variance(old), self.variance(out)
        far = xp.sum((old[..., :n] - out[..., :n]) ** 2, -1)
        return 0.5 * (far / after + n * (before / after - 1.0 - xp.log(before / after)))


def tanh_normal(mean: Array, log_std: Array, noise: Array) -> tuple[Array, Array]:
    """An action in (-1, 1) and its log-probability, from standard normal noise (Haarnoja et al. 2018, arXiv:1812.05905,
    appendix C, eq. 26). mean, log_std, noise [..., D]; returns action [..., D], log_prob [...]."""
    xp = ops.of(mean)
    u = mean + xp.exp(log_std) * noise
    normal = -0.5 * noise * noise - log_std - HALF_LOG_2PI
    squash = 2.0 * (log(2) - u - xp.softplus(-2.0 * u))  # log(1 - tanh(u)^2), without overflow
    return xp.tanh(u), xp.sum(normal - squash, -1)


def for_actions(action: Leaf) -> Any:
    """The distribution over an action space: Categorical, MultiCategorical or Gaussian."""
    if action.kind == "discrete":
        return Categorical(action.sizes[0])
    if action.kind == "multidiscrete":
        return MultiCategorical(action.sizes)
    return Gaussian(action.width)


def _total(parts: Any) -> Array:
    first, *rest = parts
    for part in rest:
        first = first + part
    return first
