from __future__ import annotations

import numpy as np
import pytest

from tandem.math.returns import generalized_advantage


def slow(reward, discount, last, value, bootstrap, trace):
    """Schulman et al. 2016, eq. 16, as the sum it is: for every step, over all steps that follow in its episode."""
    steps, envs = reward.shape
    after = np.concatenate([value[1:], bootstrap[None]])
    out = np.zeros((steps, envs))
    for n in range(envs):
        for t in range(steps):
            weight = 1.0
            for k in range(t, steps):
                reach = 0.0 if last[k, n] else discount[k, n]
                out[t, n] += weight * (reward[k, n] + reach * after[k, n] - value[k, n])
                weight *= reach * trace
    return out


def test_two_steps_by_hand() -> None:
    one = np.ones((2, 1), np.float32)
    value = np.array([[2.0], [4.0]], np.float32)
    got = generalized_advantage(one, 0.5 * one, np.zeros((2, 1), bool), value, np.array([8.0], np.float32), 0.5)
    second = 1 + 0.5 * 8 - 4
    np.testing.assert_allclose(got[:, 0], [1 + 0.5 * 4 - 2 + 0.25 * second, second])


@pytest.mark.parametrize("trace", [0.0, 0.95, 1.0])
def test_episodes_that_end_in_the_middle(trace) -> None:
    rng = np.random.default_rng(1)
    reward, value = rng.normal(size=(2, 12, 5)).astype(np.float32)
    bootstrap = rng.normal(size=5).astype(np.float32)
    last = rng.random((12, 5)) < 0.25
    terminated = last & (rng.random((12, 5)) < 0.5)
    last[-1, 0], last[4, 1], terminated[4, 1], terminated[5, 2], last[5, 2] = True, True, False, True, True
    discount = np.where(terminated, 0, 0.9).astype(np.float32)
    got = generalized_advantage(reward, discount, last, value, bootstrap, trace)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, slow(reward, discount, last, value, bootstrap, trace), rtol=1e-4, atol=1e-5)


def test_nothing_reaches_over_an_end() -> None:
    rng = np.random.default_rng(2)
    reward, value = rng.normal(size=(2, 6, 1)).astype(np.float32)
    discount, last = np.full((6, 1), 0.9, np.float32), np.zeros((6, 1), bool)
    last[2] = True
    before = generalized_advantage(reward, discount, last, value, np.zeros(1, np.float32), 0.9)
    reward[3:], value[3:] = 99, -99
    after = generalized_advantage(reward, discount, last, value, np.full(1, 50, np.float32), 0.9)
    np.testing.assert_array_equal(before[:3], after[:3])
    assert (before[3:] != after[3:]).all()
