from __future__ import annotations

import numpy as np

from tandem.math.values import clipped_value_loss, epsilon_greedy_value, huber, q_learning


def test_q_learning_by_loops() -> None:
    rng = np.random.default_rng(0)
    q, next_q, selector = rng.normal(size=(3, 3, 4, 5)).astype(np.float32)
    action = rng.integers(5, size=(3, 4))
    reward, discount = rng.normal(size=(2, 3, 4)).astype(np.float32)
    td = q_learning(q, action, reward, discount, next_q)
    double = q_learning(q, action, reward, discount, next_q, selector)
    for i in np.ndindex(3, 4):
        rest, chosen = reward[i] - q[i][action[i]], next_q[i][np.argmax(selector[i])]
        np.testing.assert_allclose(td[i], rest + discount[i] * max(next_q[i]), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(double[i], rest + discount[i] * chosen, rtol=1e-5, atol=1e-6)


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


def test_clipped_value_loss_by_hand() -> None:
    value, old = np.array([1.0, 1.0, 1.0, 0.1]), np.array([0.0, 0.0, 0.9, 0.0])
    target = np.array([2.0, 0.0, 1.5, 1.0])
    # moved to 0.2, 0.2, 1.0 and 0.1; the larger of both errors counts
    found = clipped_value_loss(value, old, target, 0.2)
    np.testing.assert_allclose(found, [1.8**2, 1, 0.5**2, 0.9**2])
