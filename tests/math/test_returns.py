from __future__ import annotations

import numpy as np
import pytest

from tandem.math.returns import generalized_advantage, lambda_return, n_step, retrace, vtrace


def slow(reward, discount, last, value, bootstrap, lambda_):
    """Schulman et al. 2016, eq. 16, as the sum it is: for every step, over all steps that follow in
    its episode."""
    steps, envs = reward.shape
    after = np.concatenate([value[1:], bootstrap[None]])
    out = np.zeros((steps, envs))
    for n in range(envs):
        for t in range(steps):
            weight = 1.0
            for k in range(t, steps):
                discount_t = 0.0 if last[k, n] else discount[k, n]
                out[t, n] += weight * (reward[k, n] + discount_t * after[k, n] - value[k, n])
                weight *= discount_t * lambda_
    return out


def test_two_steps_by_hand() -> None:
    one = np.ones((2, 1), np.float32)
    value = np.array([[2.0], [4.0]], np.float32)
    got = generalized_advantage(
        one, 0.5 * one, np.zeros((2, 1), bool), value, np.array([8.0], np.float32), 0.5
    )
    second = 1 + 0.5 * 8 - 4
    np.testing.assert_allclose(got[:, 0], [1 + 0.5 * 4 - 2 + 0.25 * second, second])


@pytest.mark.parametrize("lambda_", [0.0, 0.95, 1.0])
def test_episodes_that_end_in_the_middle(lambda_) -> None:
    rng = np.random.default_rng(1)
    reward, value = rng.normal(size=(2, 12, 5)).astype(np.float32)
    bootstrap = rng.normal(size=5).astype(np.float32)
    last = rng.random((12, 5)) < 0.25
    terminated = last & (rng.random((12, 5)) < 0.5)
    last[-1, 0], last[4, 1], terminated[4, 1], terminated[5, 2], last[5, 2] = (
        True,
        True,
        False,
        True,
        True,
    )
    discount = np.where(terminated, 0, 0.9).astype(np.float32)
    got = generalized_advantage(reward, discount, last, value, bootstrap, lambda_)
    assert got.dtype == np.float32
    np.testing.assert_allclose(
        got, slow(reward, discount, last, value, bootstrap, lambda_), rtol=1e-4, atol=1e-5
    )


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


# --- off-policy corrections -----------------------------------------------------------------------


def episodes(seed: int, steps: int = 12, envs: int = 6):
    """(reward, discount, last, value, bootstrap, ratio, terminated) with ends of both kinds in the
    middle."""
    rng = np.random.default_rng(seed)
    reward, value = rng.normal(size=(2, steps, envs)).astype(np.float32)
    last = rng.random((steps, envs)) < 0.2
    terminated = last & (rng.random((steps, envs)) < 0.5)
    last[-1, 0] = last[3, 1] = terminated[3, 1] = last[4, 2] = True
    terminated[4, 2] = False
    discount = np.where(terminated, 0, 0.9).astype(np.float32)
    ratio = np.exp(rng.normal(size=(steps, envs))).astype(np.float32)
    return reward, discount, last, value, rng.normal(size=envs).astype(np.float32), ratio


def slow_vtrace(reward, discount, last, value, bootstrap, ratio, rho, c):
    """Espeholt et al. 2018, eq. 1: the sum over s..s+n-1 of products of traces times temporal
    differences."""
    steps, envs = reward.shape
    target, advantage = np.zeros((2, steps, envs))
    for n in range(envs):
        end = lambda t, n=n: last[t, n]  # noqa: E731
        after = lambda t, n=n: bootstrap[n] if t == steps else value[t, n]  # noqa: E731
        for s in range(steps):
            total, weight = float(value[s, n]), 1.0
            for t in range(s, steps):
                gamma = 0.0 if end(t) else discount[t, n]
                total += (
                    weight
                    * min(rho, ratio[t, n])
                    * (reward[t, n] + gamma * after(t + 1) - value[t, n])
                )
                weight *= gamma * min(c, ratio[t, n])
            target[s, n] = total
        for s in range(steps):
            following = (
                0.0
                if end(s)
                else discount[s, n] * (bootstrap[n] if s == steps - 1 else target[s + 1, n])
            )
            advantage[s, n] = min(rho, ratio[s, n]) * (reward[s, n] + following - value[s, n])
    return target, advantage


@pytest.mark.parametrize("rho, c", [(1.0, 1.0), (2.0, 0.5), (100.0, 100.0)])
def test_vtrace_is_the_papers_sum(rho, c) -> None:
    data = episodes(3)
    got, wanted = vtrace(*data, rho, c), slow_vtrace(*data, rho, c)
    for x, y in zip(got, wanted, strict=True):
        assert x.dtype == np.float32
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-4)


def test_vtrace_by_hand() -> None:
    one = np.ones((2, 1), np.float32)
    value, ratio = np.array([[2.0], [4.0]], np.float32), np.array([[0.5], [3.0]], np.float32)
    target, advantage = vtrace(
        one, 0.5 * one, np.zeros((2, 1), bool), value, np.array([8.0], np.float32), ratio
    )
    second = 1 + 0.5 * 8 - 4  # its ratio is cut at 1
    np.testing.assert_allclose(
        target[:, 0], [2 + 0.5 * (1 + 0.5 * 4 - 2) + 0.5 * 0.5 * second, 4 + second]
    )
    np.testing.assert_allclose(advantage[:, 0], [0.5 * (1 + 0.5 * (4 + second) - 2), second])


def test_vtrace_of_the_policy_that_acted_is_its_return() -> None:
    reward, discount, last, value, bootstrap, ratio = episodes(4)
    target, advantage = vtrace(reward, discount, last, value, bootstrap, np.ones_like(ratio))
    wanted = generalized_advantage(reward, discount, last, value, bootstrap, 1.0)
    np.testing.assert_allclose(target, value + wanted, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(advantage, wanted, rtol=1e-4, atol=1e-4)


def slow_retrace(reward, discount, last, q, value, bootstrap, ratio, lambda_):
    """Munos et al. 2016, eq. 3: Q plus the discounted sum of traces times differences of expected
    Sarsa."""
    steps, envs = reward.shape
    out = np.zeros((steps, envs))
    for n in range(envs):
        for s in range(steps):
            total, weight = float(q[s, n]), 1.0
            for t in range(s, steps):
                if t > s:
                    weight *= lambda_ * min(1.0, ratio[t, n])
                gamma = 0.0 if last[t, n] else discount[t, n]
                following = bootstrap[n] if t == steps - 1 else value[t + 1, n]
                total += weight * (reward[t, n] + gamma * following - q[t, n])
                weight *= gamma
            out[s, n] = total
    return out


@pytest.mark.parametrize("lambda_", [0.0, 0.7, 1.0])
def test_retrace_is_the_papers_sum(lambda_) -> None:
    reward, discount, last, value, bootstrap, ratio = episodes(5)
    q = np.random.default_rng(6).normal(size=reward.shape).astype(np.float32)
    got = retrace(reward, discount, last, q, value, bootstrap, ratio, lambda_)
    assert got.dtype == np.float32
    np.testing.assert_allclose(
        got,
        slow_retrace(reward, discount, last, q, value, bootstrap, ratio, lambda_),
        rtol=1e-4,
        atol=1e-4,
    )


def test_retrace_by_hand() -> None:
    one = np.ones((2, 1), np.float32)
    q, value, ratio = (
        np.array(x, np.float32)[:, None] for x in ([1.0, 3.0], [9.0, 4.0], [7.0, 0.5])
    )
    got = retrace(
        one, 0.5 * one, np.zeros((2, 1), bool), q, value, np.array([8.0], np.float32), ratio
    )
    np.testing.assert_allclose(got[:, 0], [1 + 0.5 * (0.5 * (5 - 3) + 4), 5])


def slow_lambda_return(reward, discount, last, value, bootstrap, lambda_):
    """Sutton & Barto 2018, eq. 12.3 with discounts of each step: the mean of n-step returns with
    weights (1 - lambda) lambda^(n - 1), the rest of the weight on the longest that there is."""
    steps, envs = reward.shape
    out = np.zeros((steps, envs))
    for n in range(envs):
        for t in range(steps):
            total, weight, gone, rewards = 0.0, 1.0, 1.0, 0.0
            for k in range(t, steps):
                rewards += gone * reward[k, n]
                gone *= 0.0 if last[k, n] else discount[k, n]
                following = bootstrap[n] if k == steps - 1 else value[k + 1, n]
                share = weight if k == steps - 1 or last[k, n] else weight * (1 - lambda_)
                total += share * (rewards + gone * following)
                weight -= share
                if not weight:
                    break
            out[t, n] = total
    return out


@pytest.mark.parametrize("lambda_", [0.0, 0.6, 1.0])
def test_lambda_returns_are_means_of_n_step_returns(lambda_) -> None:
    data = episodes(7)[:-1]
    got = lambda_return(*data, lambda_)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, slow_lambda_return(*data, lambda_), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        got, data[3] + generalized_advantage(*data, lambda_), rtol=1e-4, atol=1e-5
    )
    np.testing.assert_array_equal(lambda_return(*data, np.full_like(data[0], lambda_)), got)


def test_lambda_returns_by_hand() -> None:
    one = np.ones((2, 1), np.float32)
    data = (
        one,
        0.5 * one,
        np.zeros((2, 1), bool),
        np.array([[2.0], [4.0]], np.float32),
        np.array([8.0], np.float32),
    )
    np.testing.assert_allclose(
        lambda_return(*data, 0.25)[:, 0], [1 + 0.5 * (0.75 * 4 + 0.25 * 5), 5]
    )
    traces = np.array([[1.0], [0.0]], np.float32)
    np.testing.assert_allclose(lambda_return(*data, traces)[:, 0], [1 + 0.5 * 5, 5])


@pytest.mark.parametrize("n", [1, 2, 5, 30])
def test_n_steps_end_with_their_episode_and_with_the_steps(n: int) -> None:
    rng = np.random.default_rng(3)
    reward = rng.normal(size=(9, 4)).astype(np.float32)
    last = rng.random((9, 4)) < 0.2
    discount = np.where(last & (rng.random((9, 4)) < 0.5), 0, 0.9).astype(np.float32)
    value, several = (rng.normal(size=(9, 4, *x)).astype(np.float32) for x in ((), (3, 2)))
    got = n_step(reward, discount, last, n, value, several)
    lengths = set()
    for t in range(9):
        for env in range(4):
            total, product, k = 0.0, 1.0, t
            for k in range(t, min(t + n, 9)):
                total += product * reward[k, env]
                product *= discount[k, env]
                if last[k, env]:
                    break
            lengths.add(k - t + 1)
            np.testing.assert_allclose(got[0][t, env], total, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(got[1][t, env], product, rtol=1e-6)
            assert got[2][t, env] == value[k, env] and (got[3][t, env] == several[k, env]).all()
    assert max(lengths) == min(n, 9) or n > 5
