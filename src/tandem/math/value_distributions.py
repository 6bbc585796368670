"""Distributional values: projection onto fixed atoms, and quantile regression."""

from __future__ import annotations

import numpy as np

from tandem import ops
from tandem.errors import same_shapes
from tandem.types import Array


def atoms(low: float, high: float, count: int) -> Array:
    """Return the positions of `count` evenly spaced atoms from low to high (Bellemare et al. 2017,
    arXiv:1707.06887, section 4.1), float32 [count]."""
    return np.linspace(low, high, count, dtype=np.float32)


def categorical_projection(place: Array, probability: Array, support: Array) -> Array:
    """Project a distribution with any positions onto evenly spaced atoms: probability between two
    atoms is divided between them, probability beyond the ends goes to the outermost atom (Bellemare
    et al. 2017, arXiv:1707.06887, eq. 7).

    Args:
        place: Positions of the probabilities, [..., M].
        probability: [..., M].
        support: The atoms, NumPy [K], evenly spaced and increasing, K at least 2.

    Returns:
        Probabilities [..., K]; NaN if a position is not finite.

    Raises:
        SpaceError: if the shapes do not fit.
    """
    same_shapes(place.shape, probability=probability)
    xp = ops.of(place)
    # in units of the atom spacing, from the first atom
    step = (support[-1] - support[0]) / (len(support) - 1)
    steps = xp.clip((place - float(support[0])) / float(step), 0.0, len(support) - 1.0)
    index = xp.constant(np.arange(len(support), dtype=np.float32), place)
    share = xp.relu(1.0 - xp.abs(steps[..., None] - index))  # [..., M, K]
    # XLA's fast minimum and maximum may replace NaN by a bound
    unknown = xp.sum(0.0 * place, -1)
    return xp.sum(share * probability[..., None], -2) + unknown[..., None]


def cross_entropy(logits: Array, probability: Array) -> Array:
    """Return the cross-entropy -sum p log softmax(logits) (Bellemare et al. 2017, algorithm 1),
    [...], of logits and probabilities [..., K]. Raises SpaceError if the shapes do not fit."""
    same_shapes(logits.shape, probability=probability)
    xp = ops.of(logits)
    return -xp.sum(probability * xp.log_softmax(logits), -1)


def midpoints(count: int) -> Array:
    """Return the fractions (2 i + 1) / (2 N) whose quantiles are estimated (Dabney et al. 2018,
    arXiv:1710.10044, lemma 2), float32 [N]."""
    return ((np.arange(count) + 0.5) / count).astype(np.float32)


def fractions(quantile: Array) -> Array:
    """Return the midpoints for the number of quantiles [..., N], in their shape and without
    gradient."""
    xp = ops.of(quantile)
    return xp.stop_gradient(xp.constant(midpoints(quantile.shape[-1]), quantile) + 0.0 * quantile)


def quantile_huber(quantile: Array, fraction: Array, target: Array, delta: float = 1.0) -> Array:
    """Return the quantile regression loss |tau - [u < 0]| H(u) / delta of the errors u = target -
    quantile, with Huber's H, summed over quantiles and averaged over targets (Dabney et al. 2018,
    arXiv:1710.10044, eqs. 9 and 10; Dabney et al. 2018b, arXiv:1806.06923, eq. 3).

    Args:
        quantile: Estimates of the quantiles at `fraction`, [..., N].
        fraction: tau, [..., N], from 0 to 1.
        target: Samples of the distribution, or other quantiles, [..., M].
        delta: Error beyond which the loss is linear, in units of the quantiles; above 0.

    Returns:
        The loss, [...].

    Raises:
        SpaceError: if the shapes do not fit.
    """
    same_shapes(quantile.shape, fraction=fraction)
    same_shapes((*quantile.shape[:-1], -1), target=target)
    xp = ops.of(quantile)
    error = target[..., None, :] - quantile[..., :, None]  # [..., N, M]
    fraction, fixed = fraction[..., :, None], xp.stop_gradient(error)
    # H(u) is c (u - c / 2), with slope c, for clipped errors c. Differentiating only u costs one
    # product per error of N x M.
    clipped = xp.clip(fixed, -delta, delta)
    slope = xp.stop_gradient(xp.where(fixed < 0.0, 1.0 - fraction, fraction) * clipped)
    return xp.sum(xp.mean(slope * (error - 0.5 * clipped), -1), -1) / delta
