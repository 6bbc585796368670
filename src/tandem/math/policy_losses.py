"""Policy learning: surrogates and divergences."""

from __future__ import annotations

from tandem import ops
from tandem.errors import same_shapes
from tandem.types import Array


def clipped_surrogate(ratio: Array, advantage: Array, clip: Array) -> Array:
    """Return the clipped surrogate objective, to be maximized (Schulman et al. 2017,
    arXiv:1707.06347, eq. 7): min(ratio A, clip(ratio, 1 - clip, 1 + clip) A).

    Args:
        ratio: pi(a | s) / pi_old(a | s), [...].
        advantage: A, [...].
        clip: Clip range, epsilon in the paper.

    Returns:
        The objective, [...].

    Raises:
        SpaceError: if the shapes do not fit.
    """
    same_shapes(ratio.shape, advantage=advantage)
    xp = ops.of(ratio)
    return xp.minimum(ratio * advantage, xp.clip(ratio, 1.0 - clip, 1.0 + clip) * advantage)


def kl_estimate(log_ratio: Array) -> Array:
    """Return a low-variance, nonnegative estimate of KL(old || new) from samples of the old policy:
    r - 1 - log r (Schulman 2020, "Approximating KL divergence", estimator k3).

    Args:
        log_ratio: log pi_new(a | s) - log pi_old(a | s), [...].

    Returns:
        The estimates, [...], in nats.
    """
    return ops.of(log_ratio).exp(log_ratio) - 1.0 - log_ratio


def standardize(x: Array, weight: Array) -> Array:
    """Return x with weighted mean 0 and standard deviation 1; x itself if at most one row has
    weight.

    Args:
        x: [B].
        weight: [B], 0 for rows to ignore.

    Returns:
        [B].

    Raises:
        SpaceError: if the shapes do not fit.
    """
    same_shapes(x.shape, weight=weight)
    xp = ops.of(x)
    total = xp.sum(weight)
    alone = xp.sum(weight * weight) >= total * total
    total = xp.where(alone, 1.0, total)
    mean = xp.sum(weight * x) / total
    standard = (x - mean) / (xp.sqrt(xp.sum(weight * (x - mean) ** 2) / total) + 1e-8)
    return xp.where(alone, x, standard)
