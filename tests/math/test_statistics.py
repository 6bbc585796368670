"""Interquartile mean and bootstrap band: by hand, and against scipy."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from tandem.math.statistics import bootstrap_band, iqm


def test_iqm_by_hand() -> None:
    assert iqm([1.0, 100.0, 2.0, 4.0]) == 3.0  # drops 1 and 100
    assert iqm([0.0, 30.0, 6.0]) == 12.0  # three runs lose none
    assert iqm([5.0]) == 5.0
    np.testing.assert_array_equal(iqm([[1, 8], [2, 7], [3, 6], [4, 5]], axis=0), [2.5, 6.5])
    np.testing.assert_array_equal(iqm([[1, 2, 3, 40], [8, 7, 6, 5]], axis=1), [2.5, 6.5])


@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    hnp.arrays(
        np.float64,
        hnp.array_shapes(min_dims=2, max_dims=2, max_side=13),
        elements=st.floats(-1e6, 1e6),
    )
)
def test_iqm_is_scipys_trimmed_mean(scores: np.ndarray) -> None:
    for axis in (0, 1):
        np.testing.assert_allclose(
            iqm(scores, axis), stats.trim_mean(scores, 0.25, axis=axis), rtol=1e-12, atol=1e-6
        )


def test_iqm_says_nan_where_a_score_is_missing() -> None:
    np.testing.assert_array_equal(iqm([[1, np.nan], [2, 1], [3, 1], [4, 1]]), [2.5, np.nan])


def test_band_of_two_runs_by_hand() -> None:
    """Of two runs (0 and 1) a resample's mean is 0, 1/2 or 1 with probability 1/4, 1/2, 1/4."""
    low, high = bootstrap_band([0.0, 1.0], level=0.95)
    assert (low, high) == (0.0, 1.0)
    low, high = bootstrap_band([0.0, 1.0], level=0.4)  # the 30th and 70th of a hundred
    assert (low, high) == (0.5, 0.5)


def test_band_agrees_with_scipys_percentile_bootstrap() -> None:
    scores = np.random.default_rng(3).normal(100, 15, size=(12, 3))
    low, high = bootstrap_band(scores, samples=6000)
    reference = stats.bootstrap(
        (scores,),
        lambda x, axis: stats.trim_mean(x, 0.25, axis=axis),
        method="percentile",
        axis=0,
        n_resamples=6000,
        rng=1,
    ).confidence_interval
    np.testing.assert_allclose(low, reference.low, atol=0.6)
    np.testing.assert_allclose(high, reference.high, atol=0.6)
    assert (low < iqm(scores)).all() and (iqm(scores) < high).all()


def test_band_draws_whole_runs_together() -> None:
    """Two columns that are copies of each other must get the same band: a run is drawn, not its
    points."""
    column = np.random.default_rng(0).normal(size=(9, 1))
    low, high = bootstrap_band(np.repeat(column, 2, axis=1))
    assert low[0] == low[1] and high[0] == high[1] and low[0] < high[0]


def test_band_is_reproducible_and_seeded() -> None:
    scores = np.random.default_rng(1).normal(size=(7, 4))
    np.testing.assert_array_equal(bootstrap_band(scores, seed=5), bootstrap_band(scores, seed=5))
    assert not np.array_equal(bootstrap_band(scores, seed=5), bootstrap_band(scores, seed=6))


def test_band_of_one_run_has_no_width() -> None:
    low, high = bootstrap_band([[1.0, 2.0]], samples=10)
    np.testing.assert_array_equal([low, high], [[1.0, 2.0], [1.0, 2.0]])


def test_band_takes_any_statistic() -> None:
    low, high = bootstrap_band([1.0, 2.0, 3.0], statistic=lambda x: x.max(axis=0))
    # the largest of three draws is 1 in 1 of 27 cases, and 2.5 % lies within them
    assert (low, high) == (
        1.0,
        3.0,
    )
