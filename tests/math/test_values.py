import numpy as np

from tandem.math.optimization import conjugate_gradient, rectification
from tandem.math.policy_losses import clipped_surrogate, kl_estimate, standardize
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


def test_epsilon_greedy_values_and_huber_by_hand() -> None:
    q = np.array([[1.0, 2.0, 6.0], [4.0, -1e9, 2.0]], np.float32)
    best, mask = np.array([2, 0]), np.array([[1, 1, 1], [1, 0, 1]], np.int8)
    # 0.7 of the best, and 0.3 / 3 or 0.3 / 2 of each that may be
    wanted = [0.8 * 6 + 0.1 * 1 + 0.1 * 2, 0.85 * 4 + 0.15 * 2]
    np.testing.assert_allclose(epsilon_greedy_value(q, best, 0.3, mask), wanted, rtol=1e-6)
    np.testing.assert_allclose(epsilon_greedy_value(q[:1], best[:1], 0.3), wanted[:1], rtol=1e-6)
    each = epsilon_greedy_value(q, best, np.array([0.0, 1.0], np.float32), mask)
    np.testing.assert_allclose(each, [6.0, 3.0])
    x = np.array([0, 0.5, -1, 2, -3], np.float32)
    np.testing.assert_allclose(huber(x), [0, 0.125, 0.5, 1.5, 2.5])
    np.testing.assert_allclose(huber(x, 2.0), [0, 0.125, 0.5, 2, 4])


def test_clipped_value_loss_by_hand() -> None:
    value, old = np.array([1.0, 1.0, 1.0, 0.1]), np.array([0.0, 0.0, 0.9, 0.0])
    target = np.array([2.0, 0.0, 1.5, 1.0])
    # moved to 0.2, 0.2, 1.0 and 0.1; the larger of both errors counts
    found = clipped_value_loss(value, old, target, 0.2)
    np.testing.assert_allclose(found, [1.8**2, 1, 0.5**2, 0.9**2])


def test_clipped_surrogate_and_kl_estimate() -> None:
    ratio = np.array([1.0, 1.5, 1.5, 0.5, 0.5])
    advantage = np.array([2.0, 1.0, -1.0, 1.0, -1.0])
    np.testing.assert_allclose(clipped_surrogate(ratio, advantage, 0.2), [2, 1.2, -1.5, 0.5, -0.8])
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


def repeat(count, body, state):
    for _ in range(count):
        state = body(state)
    return state


def test_as_many_steps_as_dimensions_solve_the_system_where_it_stays() -> None:
    rng = np.random.default_rng(0)
    root = rng.normal(size=(6, 6))
    matrix, b = root @ root.T + np.eye(6), rng.normal(size=6)
    exact = np.linalg.solve(matrix, b)
    errors = []
    for steps in range(7):
        gap = conjugate_gradient(lambda x: matrix @ x, b, steps, repeat) - exact
        errors.append(gap @ matrix @ gap)  # the norm in which each step is the best of its subspace
    np.testing.assert_allclose(exact + gap, exact, rtol=1e-5)
    assert (np.diff(errors) < 0).all(), errors
    got = conjugate_gradient(lambda x: 2.0 * x, np.array([1.0, -3.0], np.float32), 20, repeat)
    np.testing.assert_allclose(got, [0.5, -1.5], rtol=1e-5)
    np.testing.assert_array_equal(conjugate_gradient(lambda x: x, np.zeros(3), 5, repeat), 0)


def test_radam_s_rectification_by_hand_and_in_the_end() -> None:
    """With beta2 = 0.5: rho_inf = 3 and nothing is ever adapted; with 0.9: rho_inf = 19."""
    np.testing.assert_array_equal(rectification(np.arange(1, 50), 0.5), 0)
    rho = 19 - 2 * 7 * 0.9**7 / (1 - 0.9**7)  # 6.17
    wanted = np.sqrt((rho - 4) * (rho - 2) * 19 / (15 * 17 * rho))
    np.testing.assert_allclose(rectification(np.array(7), 0.9), wanted, rtol=1e-6)
    factors = rectification(np.arange(1, 40_000), 0.999)
    assert (factors[:4] == 0).all() and (factors[5:] > 0).all() and (np.diff(factors) >= 0).all()
    assert factors[-1] == 1
