from __future__ import annotations

import numpy as np

from tandem.math.policy_losses import clipped_surrogate, kl_estimate, standardize


def test_clipped_surrogate_by_hand() -> None:
    ratio = np.array([1.0, 1.5, 1.5, 0.5, 0.5])
    advantage = np.array([2.0, 1.0, -1.0, 1.0, -1.0])
    np.testing.assert_allclose(clipped_surrogate(ratio, advantage, 0.2), [2, 1.2, -1.5, 0.5, -0.8])


def test_kl_estimate_is_right_on_average() -> None:
    assert kl_estimate(np.zeros(1)) == 0
    rng = np.random.default_rng(0)
    x = rng.normal(0, 1, 200_000)  # old N(0, 1), new N(0.3, 1): the divergence is 0.3^2 / 2
    log_ratio = -0.5 * (x - 0.3) ** 2 + 0.5 * x**2
    assert abs(kl_estimate(log_ratio).mean() - 0.045) < 0.001


def test_standardize_weighs_rows() -> None:
    x, weight = np.array([1.0, 3.0, 100.0, 3.0]), np.array([1.0, 0.5, 0.0, 0.5])
    mean, std = 2.0, 1.0  # of 1, 1, 3, 3 / 2, the third left out
    np.testing.assert_allclose(standardize(x, weight), (x - mean) / std, rtol=1e-6)
    rows = np.random.default_rng(0).normal(5, 3, 64)
    wanted = (rows - rows.mean()) / rows.std()
    np.testing.assert_allclose(standardize(rows, np.ones(64)), wanted, rtol=1e-6)
    # one row has no deviation to be divided by, and stays what it is; so does none
    for alone in (np.eye(4)[1], 0.5 * np.eye(4)[1], np.zeros(4)):
        np.testing.assert_array_equal(standardize(x, alone), x)
    # no deviation: no NaN
    np.testing.assert_array_equal(standardize(np.full(4, 7.0), np.ones(4)), np.zeros(4))
