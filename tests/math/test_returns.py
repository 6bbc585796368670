"""Returns and corrections: as the sums that their papers have, by loops in float64."""

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


def summed(delta, decay):
    """For every step: the sum of what follows it, times all decays between."""
    out = np.zeros(delta.shape)
    for n, s in np.ndindex(delta.shape[1], len(delta)):
        weight = 1.0
        for t in range(s, len(delta)):
            out[s, n] += weight * delta[t, n]
            weight *= decay[t, n]
    return out


def wide(reward, discount, last, value, bootstrap, *more):
    """The same in float64: rewards, discounts within episodes, values, and those that follow."""
    after = np.concatenate([value[1:], bootstrap[None]])
    return *map(np.float64, (reward, np.where(last, 0, discount), value, after)), *more


@pytest.mark.parametrize("lambda_", [0.0, 0.95, 1.0])
def test_advantages_are_the_papers_sum(lambda_) -> None:
    """Schulman et al. 2016, eq. 16."""
    reward, gamma, value, after = wide(*episodes(1)[:-1])
    wanted = summed(reward + gamma * after - value, gamma * lambda_)
    agree(generalized_advantage(*episodes(1)[:-1], lambda_), wanted)


@pytest.mark.parametrize("bounds", [(), (2.0, 0.5), (100.0, 100.0)])
def test_vtrace_is_the_papers_sum(bounds) -> None:
    """Espeholt et al. 2018, eq. 1: products of traces times temporal differences."""
    reward, gamma, value, after, ratio = wide(*episodes(3))
    rho, c = (np.minimum(bound, ratio) for bound in bounds or (1.0, 1.0))
    wanted = value + summed(rho * (reward + gamma * after - value), gamma * c)
    target, advantage = vtrace(*episodes(3), *bounds)
    agree(target, wanted)
    agree(advantage, rho * (reward + gamma * np.concatenate([wanted[1:], after[-1:]]) - value))


@pytest.mark.parametrize("lambda_", [(), (0.0,), (0.7,)])
def test_retrace_is_the_papers_sum(lambda_) -> None:
    """Munos et al. 2016, eq. 3: traces times differences of expected Sarsa."""
    *data, ratio = episodes(5)
    q = np.random.default_rng(6).normal(size=ratio.shape).astype(np.float32)
    reward, gamma, _, after = wide(*data)
    trace = np.append(np.minimum(1.0, ratio[1:]), ratio[:1], 0) * (*lambda_, 1.0)[0]
    wanted = q + summed(reward + gamma * after - q, gamma * trace)
    agree(retrace(*data[:3], q, *data[3:], ratio, *lambda_), wanted)


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
