"""Returns and corrections: as the sums that their papers have, by loops in float64, and against
numbers that the tests of google-deepmind/rlax assert (multistep_test.py, vtrace_test.py). Only
numbers are theirs; their sequences are rows, ours are columns."""

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


# --- numbers of others ----------------------------------------------------------------------------


def columns(*rows: list[float]) -> np.ndarray:
    return np.array(rows, np.float32).T


def never(x: np.ndarray) -> np.ndarray:
    return np.zeros(x.shape, np.bool_)


def test_lambda_returns_of_rlax() -> None:
    reward = columns([1.0, 0.0, -1.0, 0.0, 1.0], [0.5, 0.8, -0.7, 0.0, 2.1])
    discount = columns([0.5, 0.9, 1.0, 0.5, 0.8], [0.9, 0.5, 0.3, 0.8, 0.7])
    after = columns([3.0, 1.0, 5.0, -5.0, 3.0], [-1.7, 1.2, 2.3, 2.2, 2.7])
    value = np.concatenate([np.zeros((1, 2), np.float32), after[:-1]])
    got = lambda_return(reward, discount, never(reward), value, after[-1], 0.75)
    first = [1.6460547, 0.72281253, 0.7375001, 0.6500001, 3.4]
    wanted = columns(first, [0.7866317, 0.9913063, 0.1101501, 2.834, 3.99])
    np.testing.assert_allclose(got, wanted, rtol=1e-5)


def test_advantages_of_rlax() -> None:
    """Its tolerance, 1e-3, is its own; a discount of 0 in the middle of the second row is an
    end."""
    reward = columns([0.0, 0.0, 1.0, 0.0, -0.5], [0.0, 0.0, 0.0, 0.0, 1.0])
    value = columns([1.0, 4.0, -3.0, -2.0, -1.0], [-3.0, -2.0, -1.0, 0.0, 5.0])
    discount = columns([0.99] * 5, [0.9, 0.9, 0.9, 0.0, 0.9])
    first = [-0.676979, -5.248167, 2.4846, 0.6704, -0.49]
    wanted = columns(first, [2.2899, 1.73, 1.0, 0.0, -4.9])
    for last in (never(reward), discount == 0):
        got = generalized_advantage(reward, discount, last, value, np.float32([-1, -1]), 0.7)
        np.testing.assert_allclose(got, wanted, atol=1e-3)


def test_vtrace_of_rlax() -> None:
    """Its sequences of two choices; the ratios of the softmax of its logits."""
    one, other = [[8.9, 0.7], [5.0, 1.0], [0.6, 0.1], [-0.9, -0.1]], [[0.3, -5.0], [1.0, -8.0]]
    behaviour = np.array([one, [*other, [0.3, 1.7], [4.7, 3.3]]])
    one, other = [[0.4, 0.5], [9.2, 8.8], [0.7, 4.4], [7.9, 1.4]], [[1.0, 0.9], [1.0, -1.0]]
    target = np.array([one, [*other, [-4.3, 8.7], [0.8, 0.3]]])
    action = np.array([[0, 1, 0, 0], [1, 0, 0, 1]])
    log_p, log_mu = (x - np.log(np.exp(x).sum(-1, keepdims=True)) for x in (target, behaviour))
    log_ratio = np.take_along_axis(log_p - log_mu, action[..., None], -1)[..., 0].T
    reward = columns([-1.3, -1.3, 2.3, 42.0], [1.3, 5.3, -3.3, -5.0])
    discount = columns([0.0, 0.89, 0.85, 0.99], [0.88, 1.0, 0.83, 0.95])
    value, last = columns([2.1, 1.1, -3.1, 0.0], [3.1, 0.1, -1.1, 7.4]), np.float32([8.4, -1.2])
    found, advantage = vtrace(
        reward, discount, discount == 0, value, last, np.exp(log_ratio).astype(np.float32)
    )
    first = [-1.6155143, -3.4973226, 1.8670533, 50.316002]
    errors = columns(first, [1.4662437, 3.6116405, -8.3327293e-5, -13.54])
    gains = columns(first, [1.4662433, 3.6116405, -8.3369283e-5, -13.54])
    np.testing.assert_allclose(found - value, errors, rtol=1e-3, atol=2e-7)
    np.testing.assert_allclose(advantage, gains, rtol=1e-3, atol=2e-7)


def test_retrace_of_rlax() -> None:
    """value_learning_test.py, the continuous case: half the squared error of each target."""
    q = columns([1.1, 1.1, 3.1], [3.1, 9.5, -2.1])
    # of a target network: what the trace looks back on
    target_q = columns([1.2, 0.2, 2.2], [2.2, 1.2, -1.2])
    expected_q = columns([-0.08, 0.84000003, -2.625], [1.2, -1.9, 1.3499999])  # after each step
    reward = columns([-1.3, -1.3, 2.3], [1.3, 5.3, -3.3])
    discount = columns([0.0, 0.89, 0.85], [0.88, 1.0, 0.83])
    log_ratio = columns([2.0794415, -0.4054651, 1.0986122], [0.51082563, -1.2039728, -1.0986123])
    value, last = np.concatenate([np.zeros((1, 2), np.float32), expected_q[:-1]]), expected_q[-1]
    ratio = np.exp(log_ratio)
    got = retrace(reward, discount, never(reward), target_q, value, last, ratio, 0.9)
    wanted = columns([2.88, 5.643226, 4.594238], [0.04236919, 20.44066, 0.003160141])
    np.testing.assert_allclose(0.5 * (got - q) ** 2, wanted, rtol=2e-5, atol=1e-6)
