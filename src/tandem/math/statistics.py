"""Statistics over the scores of several runs: of one task, the interquartile mean and its bootstrap
interval; of several tasks, aggregate scores, performance profiles and the probability of
improvement, with intervals of the stratified bootstrap.

Source: Agarwal, Schwarzer, Castro, Courville, Bellemare, "Deep Reinforcement Learning at the Edge
of the Statistical Precipice", 2021, arXiv:2108.13264, sections 4.1 (bootstrap confidence
intervals), 4.2 (performance profiles) and 4.3 (aggregate scores, probability of improvement). The
definitions are those of the authors' library, rliable.

A matrix of scores is [..., R, M]: R runs of each of M tasks. All axes before these two are those of
resamples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import comb

import numpy as np

from tandem.types import Array

FEW = 5  # runs of a task below which an interval is not to be relied on


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


CHUNK = 2**18  # scores that are resampled at once


def interquartile_mean(scores: Array) -> Array:
    """The interquartile mean of all runs of all tasks together: [..., R, M] -> [...], float64."""
    scores = np.asarray(scores, np.float64)
    return iqm(scores.reshape(*scores.shape[:-2], -1), axis=-1)


def mean_of_tasks(scores: Array) -> Array:
    """The mean over tasks of the mean over runs: [..., R, M] -> [...], float64."""
    return np.asarray(scores, np.float64).mean(axis=-2).mean(axis=-1)


def median_of_tasks(scores: Array) -> Array:
    """The median over tasks of the mean over runs: [..., R, M] -> [...], float64."""
    return np.median(np.asarray(scores, np.float64).mean(axis=-2), axis=-1)


def optimality_gap(scores: Array, threshold: float = 1.0) -> Array:
    """By how much scores fall short of `threshold` on average; what is above it counts as it:
    [..., R, M] -> [...], float64."""
    below = np.minimum(np.asarray(scores, np.float64), threshold)
    return threshold - below.mean(axis=(-2, -1))


def performance_profile(scores: Array, thresholds: Array) -> Array:
    """The share of runs, of all tasks together, whose score is above each threshold.

    scores: [..., R, M]. thresholds: [T].

    Returns [..., T], float64.
    """
    scores = np.asarray(scores, np.float64)
    flat = scores.reshape(*scores.shape[:-2], 1, -1)
    return (flat > np.asarray(thresholds, np.float64)[:, None]).mean(axis=-1)


def probability_of_improvement(x: Array, y: Array) -> Array:
    """How likely a run of X scores higher than one of Y on the same task, averaged over tasks;
    equal scores are half of it. For each task that is the Mann-Whitney U statistic over R_x · R_y.

    x: [..., R_x, M]. y: [..., R_y, M].

    Returns [...], float64.
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
    """The percentile interval of a statistic by the stratified bootstrap (section 4.1): from each
    task R of its R runs are drawn with replacement, of each matrix by itself.

    statistic: matrices [B, R, M] -> [B, ...]; it gets as many of them as `scores` has.
    scores: the matrices [R, M]. R may differ between them, M not.
    level: the share of resampled statistics within the interval.
    samples: how many resamples there are.
    seed: the same seed gives the same interval.
    indices: for each matrix the runs to draw [B, R, M], instead of samples and seed.

    Returns (low, high), both [...]; equal ones where each task has a single run.
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
    """scores [R, M] by runs of each task [B, R, M]: [B, R, M]."""
    return scores[indices, np.arange(scores.shape[1])]


def range_holds_median(runs: int) -> float:
    """How likely the range from the lowest to the highest of so many runs of a task holds the
    median of all runs that there could be: 1 - 2^(1-R), for any continuous distribution. No
    interval of means that is drawn from these runs is wider."""
    return 1.0 - float(0.5 ** (runs - 1))


def chance_of_clean_win(x: int, y: int, tasks: int = 1) -> float:
    """How likely, where X and Y score alike, each of x runs of the one is better than each of y
    runs of the other, in all tasks and whichever of them it is: 2 / C(x+y, x)^M. It is the smallest
    two-sided p that a Mann-Whitney test of one task can have (Mann & Whitney 1947)."""
    return min(1.0, 2.0 / float(comb(x + y, x)) ** tasks)
