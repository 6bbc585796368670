"""Returns and corrections: as the sums that their papers have, by loops in float64."""

from __future__ import annotations

import numpy as np
import pytest

from tandem.math.returns import generalized_advantage, lambda_return, n_step, retrace, vtrace


def episodes(seed: int, steps: int = 12, envs: int = 6):
    """(reward, discount, last, value, bootstrap, ratio) with ends of both kinds in the middle."""
    rng = np.random.default_rng(seed)
    reward, value = rng.normal(size=(2, steps, envs)).astype(np.float32)
    last = rng.random((steps, envs)) < 0.2
    terminated = last & (rng.random((steps, envs)) < 0.5)
    last[-1, 0] = last[3, 1] = terminated[3, 1] = last[4, 2] = True
    terminated[4, 2] = False
    discount = np.where(terminated, 0, 0.9).astype(np.float32)
    ratio = np.exp(rng.normal(size=(steps, envs))).astype(np.float32)
    return reward, discount, last, value, rng.normal(size=envs).astype(np.float32), ratio


def agree(found, wanted) -> None:
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


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


@pytest.mark.parametrize("lambda_", [0.0, 0.95, 1.0])
def test_advantages_are_the_papers_sum(lambda_) -> None:
    data = episodes(1)[:-1]
    agree(generalized_advantage(*data, lambda_), slow(*data, lambda_))


def slow_vtrace(reward, discount, last, value, bootstrap, ratio, rho=1.0, c=1.0):
    """Espeholt et al. 2018, eq. 1: the sum over s..s+n-1 of products of traces times temporal
    differences."""
    steps, envs = reward.shape
    after = np.concatenate([value[1:], bootstrap[None]])
    gamma = np.where(last, 0.0, discount)
    target, advantage = np.zeros((2, steps, envs))
    for n, s in np.ndindex(envs, steps):
        total, weight = float(value[s, n]), 1.0
        for t in range(s, steps):
            delta = reward[t, n] + gamma[t, n] * after[t, n] - value[t, n]
            total += weight * min(rho, ratio[t, n]) * delta
            weight *= gamma[t, n] * min(c, ratio[t, n])
        target[s, n] = total
    for n, s in np.ndindex(envs, steps):
        following = gamma[s, n] * (bootstrap[n] if s == steps - 1 else target[s + 1, n])
        advantage[s, n] = min(rho, ratio[s, n]) * (reward[s, n] + following - value[s, n])
    return target, advantage


@pytest.mark.parametrize("bounds", [(), (2.0, 0.5), (100.0, 100.0)])
def test_vtrace_is_the_papers_sum(bounds) -> None:
    data = episodes(3)
    for found, wanted in zip(vtrace(*data, *bounds), slow_vtrace(*data, *bounds), strict=True):
        agree(found, wanted)


def slow_retrace(reward, discount, last, q, value, bootstrap, ratio, lambda_=1.0):
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


@pytest.mark.parametrize("lambda_", [(), (0.0,), (0.7,)])
def test_retrace_is_the_papers_sum(lambda_) -> None:
    reward, discount, last, value, bootstrap, ratio = episodes(5)
    q = np.random.default_rng(6).normal(size=reward.shape).astype(np.float32)
    data = reward, discount, last, q, value, bootstrap, ratio, *lambda_
    agree(retrace(*data), slow_retrace(*data))


def slow_lambda_return(reward, discount, last, value, bootstrap, lambda_):
    """Sutton & Barto 2018, eq. 12.3 with discounts and lambdas of each step: the mean of n-step
    returns with weights (1 - lambda) lambda^(n - 1), the rest of the weight on the longest."""
    steps, envs = reward.shape
    out = np.zeros((steps, envs))
    for n in range(envs):
        for t in range(steps):
            total, weight, gone, rewards = 0.0, 1.0, 1.0, 0.0
            for k in range(t, steps):
                rewards += gone * reward[k, n]
                gone *= 0.0 if last[k, n] else discount[k, n]
                following = bootstrap[n] if k == steps - 1 else value[k + 1, n]
                share = weight if k == steps - 1 or last[k, n] else weight * (1 - lambda_[k, n])
                total += share * (rewards + gone * following)
                weight -= share
                if not weight:
                    break
            out[t, n] = total
    return out


@pytest.mark.parametrize("lambda_", [0.0, 0.6, 1.0])
def test_lambda_returns_are_means_of_n_step_returns(lambda_) -> None:
    data = episodes(7)[:-1]
    each = np.full_like(data[0], lambda_)
    agree(lambda_return(*data, lambda_), slow_lambda_return(*data, each))
    varied = np.random.default_rng(8).random(each.shape).astype(np.float32)
    agree(lambda_return(*data, varied), slow_lambda_return(*data, varied))


@pytest.mark.parametrize("n", [1, 2, 5, 30])
def test_n_steps_end_with_their_episode_and_with_the_steps(n: int) -> None:
    reward, discount, last, value, *_ = episodes(3, 9, 4)
    several = np.random.default_rng(3).normal(size=(9, 4, 3, 2)).astype(np.float32)
    got = n_step(reward, discount, last, n, value, several)
    lengths = set()
    for t, env in np.ndindex(9, 4):
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
