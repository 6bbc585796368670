"""Policy learning: surrogates and divergences."""

from __future__ import annotations

from tandem import ops
from tandem.types import Array


def clipped_surrogate(ratio: Array, advantage: Array, clip: Array) -> Array:
    """The clipped surrogate objective, to be maximised (Schulman et al. 2017, arXiv:1707.06347, eq.
    7). All [...]."""
    xp = ops.of(ratio)
    return xp.minimum(ratio * advantage, xp.clip(ratio, 1.0 - clip, 1.0 + clip) * advantage)


def kl_estimate(log_ratio: Array) -> Array:
    """Low-variance, never negative estimate of KL(old || new) from samples of the old policy: r - 1
    - log r (Schulman 2020, "Approximating KL divergence", k3). log_ratio [...], new minus old;
    returns [...]."""
    return ops.of(log_ratio).exp(log_ratio) - 1.0 - log_ratio


def standardize(x: Array, weight: Array) -> Array:
    """x [B] with weighted mean 0 and standard deviation 1; weight [B], zero for rows that do not
    count."""
    xp = ops.of(x)
    total = xp.sum(weight)
    mean = xp.sum(weight * x) / total
    return (x - mean) / (xp.sqrt(xp.sum(weight * (x - mean) ** 2) / total) + 1e-8)
