"""Statistics over the scores of several runs: for one task, the interquartile mean and its
bootstrap interval; for several tasks, aggregate scores, performance profiles and the probability of
improvement, with stratified bootstrap intervals.

Source: Agarwal, Schwarzer, Castro, Courville, Bellemare, "Deep Reinforcement Learning at the Edge
of the Statistical Precipice", 2021, arXiv:2108.13264, sections 4.1 (bootstrap confidence
intervals), 4.2 (performance profiles) and 4.3 (aggregate scores, probability of improvement). The
definitions are those of the authors' library, rliable.

A matrix of scores is [..., R, M]: R runs of each of M tasks. The leading axes are resamples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import comb

import numpy as np

from tandem.types import Array

FEW = 5  # runs per task below which intervals are unreliable


def iqm(scores: Array, axis: int = 0) -> Array:
    """Return the interquartile mean along `axis`: the mean of the middle half of the scores.

    A quarter of the n scores, rounded down, is dropped at either end, as in the paper's own code:
    with three runs or fewer none is dropped.

    Args:
        scores: [..., n, ...]; NaN among the n gives NaN.
        axis: The axis of the n scores.

    Returns:
        float64, without `axis`.
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
    """Return the percentile bootstrap interval of a statistic over runs. Whole runs are resampled,
    so that the points of one curve stay together.

    Args:
        scores: One entry for each of R runs of one task, [R, ...].
        statistic: [R, ...] -> [...].
        level: Share of resampled statistics within the interval.
        samples: Number of resamples.
        seed: Random seed.

    Returns:
        (low, high), both [...]; equal for a single run.
    """
    scores = np.asarray(scores, np.float64)
    runs = len(scores)
    rng = np.random.default_rng(seed)
    drawn = np.stack([statistic(scores[rng.integers(runs, size=runs)]) for _ in range(samples)])
    tail = 50 * (1 - level)
    low, high = np.percentile(drawn, [tail, 100 - tail], axis=0)
    return low, high


CHUNK = 2**18  # scores that are resampled at once


def interquartile_mean(scores: Array) -> Array:
    """Return the interquartile mean of all runs of all tasks together: [..., R, M] -> [...],
    float64."""
    scores = np.asarray(scores, np.float64)
    return iqm(scores.reshape(*scores.shape[:-2], -1), axis=-1)


def mean_of_tasks(scores: Array) -> Array:
    """Return the mean over tasks of the mean over runs: [..., R, M] -> [...], float64."""
    return np.asarray(scores, np.float64).mean(axis=-2).mean(axis=-1)


def median_of_tasks(scores: Array) -> Array:
    """Return the median over tasks of the mean over runs: [..., R, M] -> [...], float64."""
    return np.median(np.asarray(scores, np.float64).mean(axis=-2), axis=-1)


def optimality_gap(scores: Array, threshold: float = 1.0) -> Array:
    """Return the mean shortfall of scores below `threshold`, with higher scores counted as equal to
    it: [..., R, M] -> [...], float64."""
    below = np.minimum(np.asarray(scores, np.float64), threshold)
    return threshold - below.mean(axis=(-2, -1))


def performance_profile(scores: Array, thresholds: Array) -> Array:
    """Return the share of runs, over all tasks, with a score above each threshold.

    Args:
        scores: [..., R, M].
        thresholds: [T].

    Returns:
        [..., T], float64.
    """
    scores = np.asarray(scores, np.float64)
    flat = scores.reshape(*scores.shape[:-2], 1, -1)
    return (flat > np.asarray(thresholds, np.float64)[:, None]).mean(axis=-1)


def probability_of_improvement(x: Array, y: Array) -> Array:
    """Return the probability that a run of X scores higher than one of Y on the same task, averaged
    over tasks; equal scores count as half. Per task it is the Mann-Whitney U statistic over R_x ·
    R_y.

    Args:
        x: [..., R_x, M].
        y: [..., R_y, M].

    Returns:
        [...], float64.
    """
    x, y = np.asarray(x, np.float64)[..., :, None, :], np.asarray(y, np.float64)[..., None, :, :]
    return ((x > y) + 0.5 * (x == y)).mean(axis=(-3, -2)).mean(axis=-1)


def stratified_bootstrap(
    statistic: Callable[..., Array],
    scores: Sequence[Array],
    *,
    level: float = 0.95,
    samples: int = 50_000,
    seed: int = 0,
    indices: Sequence[Array] | None = None,
) -> tuple[Array, Array]:
    """Return the percentile interval of a statistic by the stratified bootstrap (section 4.1): the
    R runs of each task are resampled with replacement, independently for each matrix.

    Args:
        statistic: Matrices [B, R, M], as many as in `scores` -> [B, ...].
        scores: The matrices [R, M]. R may differ between them, M may not.
        level: Share of resampled statistics within the interval.
        samples: Number of resamples.
        seed: Random seed.
        indices: Runs to resample, [B, R, M] for each matrix, instead of samples and seed.

    Returns:
        (low, high), both [...]; equal if each task has a single run.
    """
    matrices = [np.asarray(each, np.float64) for each in scores]
    rng = np.random.default_rng(seed)
    if indices is None:
        at_once = max(1, CHUNK // max(each.size for each in matrices))
        sizes = [min(at_once, samples - done) for done in range(0, samples, at_once)]
        drawn = np.concatenate(
            [
                statistic(
                    *(_resampled(m, rng.integers(len(m), size=(n, *m.shape))) for m in matrices)
                )
                for n in sizes
            ]
        )
    else:
        drawn = statistic(*map(_resampled, matrices, indices))
    tail = 50 * (1 - level)
    low, high = np.percentile(drawn, [tail, 100 - tail], axis=0)
    return low, high


def _resampled(scores: Array, indices: Array) -> Array:
    """Return scores [R, M] of the runs [B, R, M] of each task: [B, R, M]."""
    return scores[indices, np.arange(scores.shape[1])]


def range_holds_median(runs: int) -> float:
    """Return the probability that the range of R runs of a task contains the median of all possible
    runs: 1 - 2^(1-R), for any continuous distribution. No interval of means resampled from these
    runs is wider than the range."""
    return 1.0 - float(0.5 ** (runs - 1))


def chance_of_clean_win(x: int, y: int, tasks: int = 1) -> float:
    """Return the probability that, if X and Y score alike, each of x runs of one is better than
    each of y runs of the other in all M tasks, whichever of them it is: 2 / C(x+y, x)^M. It is the
    smallest two-sided p of a Mann-Whitney test of one task (Mann & Whitney 1947)."""
    return min(1.0, 2.0 / float(comb(x + y, x)) ** tasks)
