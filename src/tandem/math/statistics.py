"""How to sum up the scores of several runs: the interquartile mean and a bootstrap band around it.

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
    three runs or fewer lose none, and their interquartile mean is their mean. NaN scores give NaN.
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
    """The percentile bootstrap interval of a statistic over runs: (low, high), both [...].

    scores is [R, ...], one entry for each of R runs of one task; `statistic` maps [R, ...] to
    [...]. Whole runs are drawn with replacement, so the points of one curve stay together. The same
    seed gives the same band. With one run, low equals high.
    """
    scores = np.asarray(scores, np.float64)
    runs = len(scores)
    rng = np.random.default_rng(seed)
    drawn = np.stack([statistic(scores[rng.integers(runs, size=runs)]) for _ in range(samples)])
    tail = 50 * (1 - level)
    low, high = np.percentile(drawn, [tail, 100 - tail], axis=0)
    return low, high
