from __future__ import annotations

import numpy as np

from tandem.math.optimization import conjugate_gradient, rectification


def repeat(count, body, state):
    for _ in range(count):
        state = body(state)
    return state


def test_as_many_steps_as_dimensions_solve_the_system() -> None:
    rng = np.random.default_rng(0)
    root = rng.normal(size=(6, 6))
    matrix, b = root @ root.T + np.eye(6), rng.normal(size=6)
    exact = np.linalg.solve(matrix, b)
    np.testing.assert_allclose(
        conjugate_gradient(lambda x: matrix @ x, b, 6, repeat), exact, rtol=1e-5
    )
    errors = []
    for steps in range(7):
        gap = conjugate_gradient(lambda x: matrix @ x, b, steps, repeat) - exact
        errors.append(gap @ matrix @ gap)  # the norm in which each step is the best of its subspace
    assert (np.diff(errors) < 0).all(), errors


def test_it_stays_where_it_has_arrived() -> None:
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
