"""Values that are distributions: projections on fixed atoms, and regression of quantiles."""

from __future__ import annotations

import numpy as np

from tandem import ops
from tandem.errors import same_shapes
from tandem.types import Array


def atoms(low: float, high: float, count: int) -> Array:
    """The places of `count` atoms, evenly from low to high (Bellemare et al. 2017,
    arXiv:1707.06887, section 4.1): float32 [count]."""
    return np.linspace(low, high, count, dtype=np.float32)


def categorical_projection(place: Array, probability: Array, support: Array) -> Array:
    """A distribution over any places, as one over even atoms: what lies between two atoms is shared
    by them, what lies beyond goes to the last one (Bellemare et al. 2017, arXiv:1707.06887, eq. 7).

    place: [..., M], where the probability lies.
    probability: [..., M].
    support: NumPy's [K], the atoms, evenly apart and rising, K at least 2.

    Returns probabilities [..., K]; NaN where a place is not finite. Raises SpaceError where the
    shapes do not fit.
    """
    same_shapes(place.shape, probability=probability)
    xp = ops.of(place)
    # in steps between atoms, from the first one
    step = (support[-1] - support[0]) / (len(support) - 1)
    steps = xp.clip((place - float(support[0])) / float(step), 0.0, len(support) - 1.0)
    index = xp.constant(np.arange(len(support), dtype=np.float32), place)
    share = xp.relu(1.0 - xp.abs(steps[..., None] - index))  # [..., M, K]
    # XLA's quick minima and maxima may take NaN for a bound
    unknown = xp.sum(0.0 * place, -1)
    return xp.sum(share * probability[..., None], -2) + unknown[..., None]


def cross_entropy(logits: Array, probability: Array) -> Array:
    """-sum p log softmax(logits) (Bellemare et al. 2017, algorithm 1), [...] of logits and
    probabilities [..., K]. Raises SpaceError where the shapes do not fit."""
    same_shapes(logits.shape, probability=probability)
    xp = ops.of(logits)
    return -xp.sum(probability * xp.log_softmax(logits), -1)


def midpoints(count: int) -> Array:
    """The fractions (2 i + 1) / (2 N) whose quantiles are estimated (Dabney et al. 2018,
    arXiv:1710.10044, lemma 2): float32 [N]."""
    return ((np.arange(count) + 0.5) / count).astype(np.float32)


def fractions(quantile: Array) -> Array:
    """The midpoints of as many fractions as there are quantiles [..., N], in their shape; no
    gradient flows through them."""
    xp = ops.of(quantile)
    return xp.stop_gradient(xp.constant(midpoints(quantile.shape[-1]), quantile) + 0.0 * quantile)


def quantile_huber(quantile: Array, fraction: Array, target: Array, delta: float = 1.0) -> Array:
    """The loss by which quantiles are regressed: |tau - [u < 0]| H(u) / delta of the errors u =
    target - quantile, with Huber's H; the sum over quantiles of the mean over targets (Dabney et
    al. 2018, arXiv:1710.10044, eqs. 9 and 10; Dabney et al. 2018b, arXiv:1806.06923, eq. 3).

    quantile: [..., N], estimates of the quantiles at `fraction`.
    fraction: [..., N], tau, in 0 to 1.
    target: [..., M], samples of the distribution, or other quantiles.
    delta: errors beyond it count linearly, in the unit of the quantiles; above 0.

    Returns [...]. Raises SpaceError where the shapes do not fit.
    """
    same_shapes(quantile.shape, fraction=fraction)
    same_shapes((*quantile.shape[:-1], -1), target=target)
    xp = ops.of(quantile)
    error = target[..., None, :] - quantile[..., :, None]  # [..., N, M]
    fraction, fixed = fraction[..., :, None], xp.stop_gradient(error)
    # H(u) is c (u - c / 2), and its slope c, of clipped errors c: where only u is differentiated,
    # N x M errors cost one product each
    clipped = xp.clip(fixed, -delta, delta)
    slope = xp.stop_gradient(xp.where(fixed < 0.0, 1.0 - fraction, fraction) * clipped)
    return xp.sum(xp.mean(slope * (error - 0.5 * clipped), -1), -1) / delta
