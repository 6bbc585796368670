"""Action distributions as pure functions of a network's output and of noise sampled outside, so
that a loss is a function of its batch, and a seed gives the same actions on every backend.

A distribution defines how a policy acts, at random or by the mode, and how its actions become the
environment's (`action_mode`). Outputs are [..., width]; log_prob, entropy and kl are [...].
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import accumulate
from math import e, log, pi
from typing import ClassVar

import numpy as np

from tandem import ops
from tandem.math.special import HALF_LOG_2PI, digamma, log_beta
from tandem.spaces import ActionMode
from tandem.types import Array, Tree


class Distribution(ABC):
    """Base class: maps a network's output [..., width] to actions."""

    action_mode: ClassVar[ActionMode]  # conversion to the environment's actions

    @property
    @abstractmethod
    def width(self) -> int:
        """Size of the network's output for an action; 0 if it depends on the number of features."""

    def part(self, out: Array) -> Array:
        """Return the part of a network's output [..., any] that defines the action: the first
        numbers."""
        return out[..., : self.width] if self.width else out

    def network_input(self, obs: Tree) -> Tree:
        """Return the network's input for observations [N, ...] when acting."""
        return obs

    def of(self, network: Callable[[Tree], Array], obs: Tree) -> Array:
        """Return the action part of a network's output for observations [N, ...]."""
        return self.part(network(self.network_input(obs)))

    @abstractmethod
    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        """Sample the random numbers that `sample` needs for `shape` actions, [*shape, ...]."""

    @abstractmethod
    def sample(self, out: Array, noise: Array) -> Array:
        """Return random actions [...]."""

    @abstractmethod
    def mode(self, out: Array) -> Array:
        """Return the deterministic actions [...]."""

    def act(self, out: Array, noise: Array | None) -> Array:
        """Return random actions [...]; with noise=None the deterministic ones."""
        return self.mode(out) if noise is None else self.sample(out, noise)


class Density(Distribution):
    """Base class of distributions with known action probabilities."""

    @abstractmethod
    def log_prob(self, out: Array, action: Array) -> Array:
        """Return the log-probability or log-density of actions, [...]."""

    @abstractmethod
    def entropy(self, out: Array) -> Array:
        """Return the entropy [...], in nats."""

    @abstractmethod
    def kl(self, old: Array, out: Array) -> Array:
        """Return the divergence KL(old || out), [...], in nats."""


@dataclass(frozen=True)
class Categorical(Density):
    """One of `n` choices, from logits [..., n]."""

    n: int

    action_mode = "as_is"

    @property
    def width(self) -> int:
        return self.n

    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        """Sample Gumbel noise: the argmax of logits plus this noise is a sample (Maddison et al.
        2014, arXiv:1411.0030)."""
        x = rng.standard_exponential((*shape, self.n), dtype=np.float32) + np.float32(1e-30)
        return -ops.of(x).log(x)

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
class MultiCategorical(Density):
    """One of `sizes[i]` choices at each position i, independently, from their concatenated logits.
    Actions are [..., len(sizes)]."""

    sizes: tuple[int, ...]

    action_mode = "as_is"

    @property
    def width(self) -> int:
        return sum(self.sizes)

    def _parts(self, x: Array) -> list[tuple[Categorical, Array]]:
        ends = accumulate(self.sizes)
        return [
            (Categorical(n), x[..., end - n : end]) for n, end in zip(self.sizes, ends, strict=True)
        ]

    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return Categorical(self.width).noise(rng, shape)

    def sample(self, out: Array, noise: Array) -> Array:
        return self.mode(out + noise)

    def mode(self, out: Array) -> Array:
        return ops.of(out).stack([d.mode(logits) for d, logits in self._parts(out)], -1)

    def log_prob(self, out: Array, action: Array) -> Array:
        return total(
            d.log_prob(logits, action[..., i]) for i, (d, logits) in enumerate(self._parts(out))
        )

    def entropy(self, out: Array) -> Array:
        return total(d.entropy(logits) for d, logits in self._parts(out))

    def kl(self, old: Array, out: Array) -> Array:
        pairs = zip(self._parts(old), self._parts(out), strict=True)
        return total(d.kl(before, after) for (d, before), (_, after) in pairs)


@dataclass(frozen=True)
class Bernoulli(Density):
    """`n` independent bits, from the logits [..., n] of being 1."""

    n: int

    action_mode = "as_is"

    @property
    def width(self) -> int:
        return self.n

    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        """Sample logistic noise: the logit plus this noise is positive with the bit's
        probability."""
        return rng.logistic(size=(*shape, self.n)).astype(np.float32)

    def sample(self, out: Array, noise: Array) -> Array:
        return (out + noise > 0).astype(np.int8)

    def mode(self, out: Array) -> Array:
        return (out > 0).astype(np.int8)

    def log_prob(self, out: Array, action: Array) -> Array:
        xp = ops.of(out)
        return xp.sum(xp.cast(action) * out - xp.softplus(out), -1)

    def entropy(self, out: Array) -> Array:
        xp = ops.of(out)
        return xp.sum(xp.softplus(out) - out * xp.sigmoid(out), -1)

    def kl(self, old: Array, out: Array) -> Array:
        xp = ops.of(out)
        apart = xp.sigmoid(old) * (old - out)
        return xp.sum(apart + xp.softplus(out) - xp.softplus(old), -1)


@dataclass(frozen=True)
class Normal(Distribution):
    """Base class of distributions of `size` numbers around means, which come first in the output.
    Actions are clipped to the bounds of the action space."""

    size: int

    action_mode: ClassVar[ActionMode] = "clip"

    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        """Sample standard normal noise, [*shape, size]."""
        return rng.standard_normal((*shape, self.size), dtype=np.float32)

    def mode(self, out: Array) -> Array:
        return out[..., : self.size]


@dataclass(frozen=True)
class Gaussian(Normal, Density):
    """Normal distribution with diagonal covariance over `size` numbers, from means and log standard
    deviations."""

    @property
    def width(self) -> int:
        return 2 * self.size

    def sample(self, out: Array, noise: Array) -> Array:
        return out[..., : self.size] + ops.of(out).exp(out[..., self.size :]) * noise

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
        return xp.sum(
            apart + 0.5 * (xp.exp(-2.0 * apart) + far * xp.exp(-2.0 * out[..., n:])) - 0.5, -1
        )


@dataclass(frozen=True)
class Spherical(Normal, Density):
    """Normal distribution over `size` numbers with a common variance, from means and a number whose
    softplus, at least 1e-4, is the variance (Mnih et al. 2016, arXiv:1602.01783, supplement,
    section 9)."""

    @property
    def width(self) -> int:
        return self.size + 1

    def variance(self, out: Array) -> Array:
        """Return the variance [...]."""
        xp = ops.of(out)
        return xp.clip(xp.softplus(out[..., self.size]), 1e-4, float("inf"))

    def sample(self, out: Array, noise: Array) -> Array:
        return out[..., : self.size] + ops.of(out).sqrt(self.variance(out))[..., None] * noise

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


@dataclass(frozen=True)
class Beta(Density):
    """Independent Beta distributions over `size` numbers in (-1, 1): 2 x - 1 for x in (0, 1) (Chou
    et al. 2017, "Improving stochastic policy gradients in continuous control with deep
    reinforcement learning using the Beta distribution", PMLR 70, eq. 11 and section 4.2). The
    outputs [..., 2 size] are alpha - 1 and beta - 1 before their softplus, so that both parameters
    are above 1, and the density has one peak and is 0 at the bounds.

    `mode` is the mean alpha / (alpha + beta): near alpha = beta = 1 the peak jumps between the
    bounds, and at 1 there is none.
    """

    size: int

    action_mode = "unit"

    # a proposal is accepted with probability 0.95 or more, so all fail once in 6e7
    TRIES = 6

    @property
    def width(self) -> int:
        return 2 * self.size

    def _shapes(self, out: Array) -> tuple[Array, Array]:
        both = ops.of(out).softplus(out) + 1.0
        return both[..., : self.size], both[..., self.size :]

    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        """Sample proposals for two gamma variates, [*shape, 2 size, TRIES, 2]: a standard normal,
        and the logarithm of a uniform."""
        normal, exponential = (
            f((*shape, self.width, self.TRIES), dtype=np.float32)
            for f in (rng.standard_normal, rng.standard_exponential)
        )
        return ops.of(normal).stack([normal, -exponential], -1)

    def sample(self, out: Array, noise: Array) -> Array:
        """Return alpha's gamma variate over the sum of both, scaled to (-1, 1). A variate is the
        first accepted proposal of Marsaglia & Tsang (2000, doi:10.1145/358407.358414, figure 1)
        among a fixed number, or the last one if none is accepted."""
        xp = ops.of(out)
        d = (xp.softplus(out) + np.float32(2 / 3))[..., None]  # shape - 1/3
        normal, log_uniform = noise[..., 0], noise[..., 1]
        v = xp.maximum(1 + normal / xp.sqrt(9 * d), np.float32(1e-6)) ** 3
        accepted = log_uniform < 0.5 * normal**2 + d * (1 - v + xp.log(v))
        accepted = accepted | (np.arange(self.TRIES) == self.TRIES - 1)
        drawn = xp.take(d * v, xp.argmax(accepted, -1))
        a, b = drawn[..., : self.size], drawn[..., self.size :]
        return (a - b) / (a + b)

    def mode(self, out: Array) -> Array:
        a, b = self._shapes(out)
        return (a - b) / (a + b)

    def log_prob(self, out: Array, action: Array) -> Array:
        """Return the log-density, evaluated at least 1e-6 from the bounds, where rounding would
        make it infinite."""
        xp, (a, b) = ops.of(out), self._shapes(out)
        # distance from either bound
        low, high = (xp.clip(0.5 * (1.0 + sign * action), 1e-6, 1.0) for sign in (1.0, -1.0))
        return xp.sum(
            (a - 1.0) * xp.log(low) + (b - 1.0) * xp.log(high) - log_beta(a, b) - log(2), -1
        )

    def entropy(self, out: Array) -> Array:
        a, b = self._shapes(out)
        s = digamma(a + b)
        each = log_beta(a, b) + (a - 1.0) * (s - digamma(a)) + (b - 1.0) * (s - digamma(b)) + log(2)
        return ops.of(out).sum(each, -1)

    def kl(self, old: Array, out: Array) -> Array:
        (a, b), (c, d) = self._shapes(old), self._shapes(out)
        s = digamma(a + b)
        each = (
            log_beta(c, d)
            - log_beta(a, b)
            + (a - c) * (digamma(a) - s)
            + (b - d) * (digamma(b) - s)
        )
        return ops.of(out).sum(each, -1)


@dataclass(frozen=True)
class TanhGaussian(Normal):
    """tanh of a normal distribution with diagonal covariance, in (-1, 1) (Haarnoja et al. 2018,
    arXiv:1812.05905, appendix C), from means and log standard deviations clipped to [-20, 2]."""

    action_mode = "unit"

    @property
    def width(self) -> int:
        return 2 * self.size

    def mode(self, out: Array) -> Array:
        return ops.of(out).tanh(out[..., : self.size])

    def sample(self, out: Array, noise: Array) -> Array:
        xp = ops.of(out)
        return xp.tanh(out[..., : self.size] + xp.exp(self.log_std(out)) * noise)

    def sample_log_prob(self, out: Array, noise: Array) -> tuple[Array, Array]:
        """Return (action [..., size], its log-density [...]), differentiable in `out`, from
        standard normal noise."""
        return tanh_normal(out[..., : self.size], self.log_std(out), noise)

    def log_std(self, out: Array) -> Array:
        """Return the clipped log standard deviations [..., size]."""
        return ops.of(out).clip(out[..., self.size :], -20.0, 2.0)


@dataclass(frozen=True)
class DeterministicDistribution(Normal):
    """The output itself, in [-1, 1], with noise added for exploration."""

    action_mode = "unit"

    @property
    def width(self) -> int:
        return self.size

    def sample(self, out: Array, noise: Array) -> Array:
        return ops.of(out).clip(out + noise, -1.0, 1.0)


def tanh_normal(mean: Array, log_std: Array, noise: Array) -> tuple[Array, Array]:
    """Return an action in (-1, 1), [..., D], and its log-probability [...], from mean, log_std and
    standard normal noise, [..., D] each (Haarnoja et al. 2018, arXiv:1812.05905, appendix C, eq.
    26)."""
    xp = ops.of(mean)
    u = mean + xp.exp(log_std) * noise
    normal = -0.5 * noise * noise - log_std - HALF_LOG_2PI
    squash = 2.0 * (log(2) - u - xp.softplus(-2.0 * u))  # log(1 - tanh(u)^2), without overflow
    return xp.tanh(u), xp.sum(normal - squash, -1)


def total(parts: Iterable[Array]) -> Array:
    first, *rest = parts
    for part in rest:
        first = first + part
    return first
