"""Against rlax 0.1.9's numbers (float32), and by what the functions promise."""

import numpy as np
import pytest

from tandem.errors import SpaceError
from tandem.math import value_distributions as v
from tandem.math.action_values import CategoricalValues

SUPPORT = v.atoms(-2.0, 2.0, 5)


def f32(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float32)


def test_a_categorical_error_is_that_of_rlax() -> None:
    """rlax.categorical_q_learning, of logits that choose the second action."""
    logits, then = f32(0, 0.3, -0.2, 0.1, 0.4), f32(1, 0.3, -0.2, 0.1, 0.4)
    other = np.exp(f32(0.4, 0.2, -0.3, 0.1, 0))
    p, other = np.exp(then) / np.exp(then).sum(), other / other.sum()
    best = p if p @ SUPPORT > other @ SUPPORT else other
    target = v.categorical_projection(0.5 + np.float32(0.9) * SUPPORT, best, SUPPORT)
    np.testing.assert_allclose(v.cross_entropy(logits, target), 1.5865271, rtol=1e-6)


def test_quantiles_are_regressed_as_by_rlax() -> None:
    """Their Huber loss is not divided by its bound."""
    estimate, fraction = f32(-1.0, 0.2, 1.5), f32(0.2, 0.5, 0.9)
    target = f32(0.5, -2.0, 3.0, 0.1)
    np.testing.assert_allclose(v.quantile_huber(estimate, fraction, target), 1.1962501, rtol=1e-6)
    np.testing.assert_allclose(v.midpoints(4), [0.125, 0.375, 0.625, 0.875])
    half = v.quantile_huber(estimate, fraction, target, 0.5)
    np.testing.assert_allclose(0.5 * half, 0.71375, rtol=1e-6)


def test_shapes_that_do_not_fit_are_named() -> None:
    for call, *given in (
        (v.categorical_projection, f32(1, 2), f32(1), SUPPORT),
        (v.cross_entropy, f32(1, 2), f32(1)),
        (v.quantile_huber, f32(1, 2), f32(0.5), f32(1)),
        (v.quantile_huber, np.zeros((2, 3)), np.zeros((2, 3)), f32(1)),
    ):
        with pytest.raises(SpaceError, match="has shape"):
            call(*given)


def test_a_soft_target_is_that_of_the_lower_critic() -> None:
    """By loops over rows, choices and atoms, in float64."""
    rng, low, high, count = np.random.default_rng(5), -2.0, 3.0, 6
    values = CategoricalValues(2, count, low, high)
    later = [rng.normal(size=(4, 2 * count)).astype(np.float32) for _ in range(3)]
    reward, discount = rng.normal(size=(2, 4)).astype(np.float32)
    cost = rng.normal(size=(4, 2)).astype(np.float32)
    policy = rng.dirichlet((1, 1), 4).astype(np.float32)
    found = values.soft_target(later, reward, discount, cost, policy)
    z = np.linspace(low, high, count)
    wanted = np.zeros((4, count))
    for row, choice in np.ndindex(4, 2):
        spread = [np.exp(x[row].reshape(2, count)[choice].astype(np.float64)) for x in later]
        least = min((p / p.sum() for p in spread), key=lambda p: float(p @ z))
        for atom, p in zip(z, least, strict=True):
            place = reward[row] + discount[row] * (atom - cost[row, choice])
            at = (np.clip(place, low, high) - low) / (z[1] - z[0])
            below = int(at)
            wanted[row, below] += policy[row, choice] * p * (1 - (at - below))
            if below + 1 < count:
                wanted[row, below + 1] += policy[row, choice] * p * (at - below)
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    np.testing.assert_allclose(found.sum(-1), 1, atol=1e-6)
    one = CategoricalValues(1, count, low, high)
    alone = [x[:, :count] for x in later]
    sure = one.soft_target(alone, reward, discount, cost[:, :1])
    ones = np.ones((4, 1), np.float32)
    np.testing.assert_array_equal(sure, one.soft_target(alone, reward, discount, cost[:, :1], ones))
