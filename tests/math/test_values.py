from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tandem.math.values import clipped_value_loss, epsilon_greedy_value, huber, q_learning


def test_q_learning_by_hand() -> None:
    q = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
    next_q = np.array([[10.0, 20.0], [40.0, 30.0]], np.float32)
    td = q_learning(q, np.array([1, 0]), np.array([1.0, 2.0]), np.array([0.5, 0.0]), next_q)
    np.testing.assert_allclose(td, [1 + 0.5 * 20 - 2, 2 + 0 - 3])
    # chooses 0, where next_q has its smaller value
    selector = np.array([[5.0, 1.0], [0.0, 9.0]], np.float32)
    td = q_learning(
        q, np.array([1, 0]), np.array([1.0, 2.0]), np.array([0.5, 1.0]), next_q, selector
    )
    np.testing.assert_allclose(td, [1 + 0.5 * 10 - 2, 2 + 30 - 3])


def test_q_learning_takes_leading_axes() -> None:
    rng = np.random.default_rng(0)
    q, next_q = rng.normal(size=(2, 3, 4, 5)).astype(np.float32)
    action = rng.integers(5, size=(3, 4))
    reward, discount = rng.normal(size=(2, 3, 4)).astype(np.float32)
    td = q_learning(q, action, reward, discount, next_q)
    for i in np.ndindex(3, 4):
        np.testing.assert_allclose(
            td[i], reward[i] + discount[i] * max(next_q[i]) - q[i][action[i]], rtol=1e-5, atol=1e-6
        )


def test_epsilon_greedy_values_by_hand() -> None:
    q = np.array([[1.0, 2.0, 6.0], [4.0, -1e9, 2.0]], np.float32)
    best, mask = np.array([2, 0]), np.array([[1, 1, 1], [1, 0, 1]], np.int8)
    # 0.7 of the best, and 0.3 / 3 or 0.3 / 2 of each that may be
    wanted = [0.8 * 6 + 0.1 * 1 + 0.1 * 2, 0.85 * 4 + 0.15 * 2]
    np.testing.assert_allclose(epsilon_greedy_value(q, best, 0.3, mask), wanted, rtol=1e-6)
    np.testing.assert_allclose(epsilon_greedy_value(q[:1], best[:1], 0.3), wanted[:1], rtol=1e-6)
    each = epsilon_greedy_value(q, best, np.array([0.0, 1.0], np.float32), mask)
    np.testing.assert_allclose(each, [6.0, 3.0])


def test_huber_by_hand() -> None:
    x = np.array([0, 0.5, -1, 2, -3], np.float32)
    np.testing.assert_allclose(huber(x), [0, 0.125, 0.5, 1.5, 2.5])
    np.testing.assert_allclose(huber(x, 2.0), [0, 0.125, 0.5, 2, 4])


@given(st.floats(-50, 50, width=32), st.sampled_from([0.5, 1.0, 2.0]))
def test_huber_s_slope_is_the_clipped_error(x, delta) -> None:
    step = 1e-4
    slope = (huber(np.float64(x + step), delta) - huber(np.float64(x - step), delta)) / (2 * step)
    assert abs(slope - np.clip(x, -delta, delta)) < 1e-3


def test_clipped_value_loss_by_hand() -> None:
    value, old = np.array([1.0, 1.0, 1.0, 0.1]), np.array([0.0, 0.0, 0.9, 0.0])
    target = np.array([2.0, 0.0, 1.5, 1.0])
    # moved to 0.2, 0.2, 1.0 and 0.1; the larger of both errors counts
    np.testing.assert_allclose(
        clipped_value_loss(value, old, target, 0.2), [1.8**2, 1, 0.5**2, 0.9**2]
    )
