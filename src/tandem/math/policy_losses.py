"""Policy learning: surrogates and divergences."""

from __future__ import annotations

from tandem import ops
from tandem.errors import same_shapes
from tandem.types import Array


def clipped_surrogate(ratio: Array, advantage: Array, clip: Array) -> Array:
    """The clipped surrogate objective, to be maximized (Schulman et al. 2017, arXiv:1707.06347, eq.
    7): min(ratio A, clip(ratio, 1 - clip, 1 + clip) A).

    ratio: [...], pi(a | s) / pi_old(a | s).
    advantage: [...], A.
    clip: a number, how far ratios may be from 1; epsilon in the paper.

    Returns the objective, [...]. Raises SpaceError where the shapes do not fit.
    """
    same_shapes(ratio.shape, advantage=advantage)
    xp = ops.of(ratio)
    return xp.minimum(ratio * advantage, xp.clip(ratio, 1.0 - clip, 1.0 + clip) * advantage)


def kl_estimate(log_ratio: Array) -> Array:
    """A low-variance estimate of KL(old || new) from samples of the old policy, never negative: r -
    1 - log r (Schulman 2020, "Approximating KL divergence", estimator k3).

    log_ratio: [...], log pi_new(a | s) - log pi_old(a | s).

    Returns the estimates, [...], in nats.
    """
    return ops.of(log_ratio).exp(log_ratio) - 1.0 - log_ratio


def standardize(x: Array, weight: Array) -> Array:
    """x with weighted mean 0 and standard deviation 1; x itself where at most one row counts.

    x: [B].
    weight: [B], 0 for rows that do not count.

    Returns [B]. Raises SpaceError where the shapes do not fit.
    """
    same_shapes(x.shape, weight=weight)
    xp = ops.of(x)
    total = xp.sum(weight)
    alone = xp.sum(weight * weight) >= total * total
    total = xp.where(alone, 1.0, total)
    mean = xp.sum(weight * x) / total
    standard = (x - mean) / (xp.sqrt(xp.sum(weight * (x - mean) ** 2) / total) + 1e-8)
    return xp.where(alone, x, standard)
