"""Statistics over the scores of several runs: the interquartile mean and its bootstrap interval.

Source: Agarwal, Schwarzer, Castro, Courville, Bellemare, "Deep Reinforcement Learning at the Edge
of the Statistical Precipice", 2021, arXiv:2108.13264, sections 4.1 (bootstrap confidence intervals)
and 4.3 (interquartile mean).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tandem.types import Array


def iqm(scores: Array, axis: int = 0) -> Array:
    """The interquartile mean along `axis`: the mean of the middle half of the scores.

    A quarter of the n scores, rounded down, is dropped at either end, as the paper's own code does:
    of three runs or fewer none is dropped.

    scores: [..., n, ...]; NaN among the n gives NaN.

    Returns float64, without `axis`.
    """
    ordered = np.sort(np.asarray(scores, np.float64), axis=axis)
    n = ordered.shape[axis]
    middle = np.take(ordered, range(n // 4, n - n // 4), axis=axis)
    missing = np.isnan(np.take(ordered, -1, axis=axis))  # NaN sorts last, where it might be dropped
    return np.where(missing, np.nan, middle.mean(axis=axis))


def bootstrap_band(
    scores: Array,
    statistic: Callable[[Array], Array] = iqm,
    level: float = 0.95,
    samples: int = 2000,
    seed: int = 0,
) -> tuple[Array, Array]:
    """The percentile bootstrap interval of a statistic over runs. Whole runs are drawn with
    replacement, so that the points of one curve stay together.

    scores: [R, ...], one entry for each of R runs of one task.
    statistic: [R, ...] -> [...].
    level: the share of resampled statistics within the interval.
    samples: how many times R runs are drawn.
    seed: the same seed gives the same interval.

    Returns (low, high), both [...]; equal ones for a single run.
    """
    scores = np.asarray(scores, np.float64)
    runs = len(scores)
    rng = np.random.default_rng(seed)
    drawn = np.stack([statistic(scores[rng.integers(runs, size=runs)]) for _ in range(samples)])
    tail = 50 * (1 - level)
    low, high = np.percentile(drawn, [tail, 100 - tail], axis=0)
    return low, high
