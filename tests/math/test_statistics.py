"""Statistics of runs: by hand, against scipy, and against numbers that rliable gave."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from tandem.math.statistics import (
    bootstrap_band,
    chance_of_clean_win,
    interquartile_mean,
    iqm,
    mean_of_tasks,
    median_of_tasks,
    optimality_gap,
    performance_profile,
    probability_of_improvement,
    range_holds_median,
    stratified_bootstrap,
)


def test_iqm_and_the_band_of_two_runs_by_hand() -> None:
    assert iqm([1.0, 100.0, 2.0, 4.0]) == 3.0  # drops 1 and 100
    assert iqm([0.0, 30.0, 6.0]) == 12.0  # three runs lose none
    # NaN where a score is missing
    np.testing.assert_array_equal(iqm([[1, np.nan], [2, 1], [3, 1], [4, 1]]), [2.5, np.nan])
    # of two runs (0 and 1) a resample's mean is 0, 1/2 or 1 with probability 1/4, 1/2, 1/4
    assert bootstrap_band([0.0, 1.0], level=0.95) == (0.0, 1.0)
    # the 30th and 70th of a hundred
    assert bootstrap_band([0.0, 1.0], level=0.4) == (0.5, 0.5)


SHAPES = hnp.array_shapes(min_dims=2, max_dims=2, max_side=13)


@settings(max_examples=60)
@given(hnp.arrays(np.float64, SHAPES, elements=st.floats(-1e6, 1e6)))
def test_iqm_is_scipys_trimmed_mean(scores: np.ndarray) -> None:
    for axis in (0, 1):
        trimmed = stats.trim_mean(scores, 0.25, axis=axis)
        np.testing.assert_allclose(iqm(scores, axis), trimmed, rtol=1e-12, atol=1e-6)


def test_band_draws_whole_runs_is_seeded_and_takes_any_statistic() -> None:
    """Columns that are copies get the same band: a run is drawn, not its points."""
    scores = np.repeat(np.random.default_rng(0).normal(size=(9, 1)), 2, axis=1)
    low, high = bootstrap_band(scores)
    assert low[0] == low[1] and high[0] == high[1] and low[0] < high[0]
    np.testing.assert_array_equal(bootstrap_band(scores, seed=0), [low, high])
    assert not np.array_equal(bootstrap_band(scores, seed=6), [low, high])
    # the largest of three draws is 1 in 1 of 27 cases, and 2.5 % lies within them
    assert bootstrap_band([1.0, 2.0, 3.0], statistic=lambda x: x.max(axis=0)) == (1.0, 3.0)


X = [[0.659, 0.572, 0.603], [0.654, 0.339, 0.646], [0.525, 0.713, 0.964], [0.460, 0.633, 0.529]]
X.append([0.682, 0.740, 0.071])
# 0.659 and 0.529 are those of X, in the same tasks
Y = [[0.659, 0.020, 0.500], [0.778, 0.870, 0.529], [0.799, 0.461, 0.468], [0.118, 0.640, 0.086]]
TAUS = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]


def drawn(seed: int, *runs: int, samples: int = 500) -> list[np.ndarray]:
    """The runs that rliable draws after `np.random.seed(seed)`, of matrices with so many runs of
    three tasks: [samples, runs, 3] each."""
    rng = np.random.RandomState(seed)
    draws = [[rng.choice(r, (r, 3), replace=True) for r in runs] for _ in range(samples)]
    return [np.array(each) for each in zip(*draws, strict=True)]


def aggregates(scores: np.ndarray) -> np.ndarray:
    every = (interquartile_mean, mean_of_tasks, median_of_tasks, optimality_gap)
    return np.stack([each(scores) for each in every], axis=-1)


def test_aggregates_are_rliables() -> None:
    """rliable 1.2.0: metrics.aggregate_*, and library.get_interval_estimates with 500 resamples
    after np.random.seed(7)."""
    point = [0.6114444444444445, 0.586, 0.596, 0.4139999999999999]
    low = [0.5298333333333334, 0.489, 0.5032, 0.3239616666666667]
    high = [0.6670638888888889, 0.6760383333333334, 0.6688000000000001, 0.511]
    np.testing.assert_allclose(aggregates(np.array(X)), point, rtol=0, atol=1e-12)
    found = stratified_bootstrap(aggregates, [X], indices=drawn(7, 5))
    np.testing.assert_allclose(found, [low, high], rtol=0, atol=1e-12)


def test_improvement_and_performance_profiles_are_rliables() -> None:
    """Of two samples of different sizes, with equal scores in them, after np.random.seed(9); and
    library.create_performance_profile, after np.random.seed(10)."""
    assert probability_of_improvement(X, Y) == pytest.approx(0.55, abs=1e-12)
    found = stratified_bootstrap(probability_of_improvement, [X, Y], indices=drawn(9, 5, 4))
    np.testing.assert_allclose(found, [1 / 3, 0.7543749999999998], rtol=0, atol=1e-12)
    point = [1.0, 0.9333333333333333, 0.8666666666666667, 0.6, 0.06666666666666667, 0.0]
    low, high = [1.0, 0.8, 0.6666666666666666, 1 / 3, 0.0, 0.0], [1.0, 1.0, 1.0, 13 / 15, 0.2, 0.0]
    np.testing.assert_allclose(performance_profile(X, TAUS), point, rtol=0, atol=1e-12)
    found = stratified_bootstrap(lambda x: performance_profile(x, TAUS), [X], indices=drawn(10, 5))
    np.testing.assert_allclose(found, [low, high], rtol=0, atol=1e-12)


@settings(max_examples=30)
@given(st.integers(1, 5), st.integers(1, 6), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_aggregates_by_their_formulas(tasks: int, many: int, others: int, seed: int) -> None:
    """Of scores with ties, by loops and scipy."""
    rng = np.random.default_rng(seed)
    x, y = (rng.integers(-4, 9, (runs, tasks)) / 4 for runs in (many, others))
    middle = stats.trim_mean(x, 0.25, axis=None)
    assert interquartile_mean(x) == pytest.approx(middle, abs=1e-12)
    means = [sum(x[:, m]) / len(x) for m in range(tasks)]
    assert mean_of_tasks(x) == pytest.approx(sum(means) / tasks, abs=1e-12)
    assert median_of_tasks(x) == pytest.approx(np.median(means), abs=1e-12)
    short = [1 - min(s, 1.0) for s in x.ravel()]
    assert optimality_gap(x) == pytest.approx(sum(short) / len(short), abs=1e-12)
    pairs = zip(x.T, y.T, strict=True)
    won = [np.mean([(a > b) + (a == b) / 2 for a in xs for b in ys]) for xs, ys in pairs]
    assert probability_of_improvement(x, y) == pytest.approx(np.mean(won), abs=1e-12)


def test_resamples_keep_to_their_tasks() -> None:
    """Tasks a thousand apart: a run is only ever drawn for its own, of each task by itself."""
    scores = np.array([[0.0, 1000.0], [1.0, 1001.0]])
    seen = []
    summed = lambda x: seen.append(x) or x.sum(axis=(1, 2))  # noqa: E731
    stratified_bootstrap(summed, [scores], samples=400, seed=1)
    resampled = np.concatenate(seen)
    assert resampled.shape == (400, 2, 2)
    assert set(resampled[..., 0].ravel()) == {0.0, 1.0}
    assert set(resampled[..., 1].ravel()) == {1000.0, 1001.0}
    assert len({tuple((row % 1000).ravel()) for row in resampled}) == 16  # all 2^4 are there


def test_intervals_are_seeded_and_the_same_in_any_chunks(monkeypatch) -> None:
    def interval(seed: int) -> np.ndarray:
        return np.array(stratified_bootstrap(aggregates, [X], samples=3000, seed=seed))

    first = interval(0)
    np.testing.assert_array_equal(first, interval(0))
    assert not np.array_equal(first, interval(1))
    monkeypatch.setattr("tandem.math.statistics.CHUNK", 100 * 15)
    np.testing.assert_allclose(interval(0), first, atol=0.02)
    assert (first[0] < first[1]).all()


def test_what_few_runs_can_say() -> None:
    """The chances, by going through all orders and all halves."""
    from itertools import combinations, product

    for runs in (1, 2, 3, 5, 6):
        sides = list(product((False, True), repeat=runs))  # whether each is below the median
        held = sum(any(s) and not all(s) for s in sides) / len(sides)
        assert range_holds_median(runs) == pytest.approx(held)
    for x, y in ((1, 1), (2, 3), (3, 3), (4, 4)):
        orders = list(combinations(range(x + y), x))  # the ranks of X
        clean = [o for o in orders if o in (tuple(range(x)), tuple(range(y, x + y)))]
        assert chance_of_clean_win(x, y) == pytest.approx(len(clean) / len(orders))
        assert chance_of_clean_win(x, y, 2) == min(1.0, 2 / len(orders) ** 2)
