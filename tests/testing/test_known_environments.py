from __future__ import annotations

import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from tandem.envs.factory import make
from tandem.testing import environments as known
from tandem.testing.memory_games import Recall

ANSWERED = (*known.KNOWN, Recall)


@pytest.mark.parametrize("kind", ANSWERED + known.FAULTY)
def test_is_registered_under_its_name_and_passes_gymnasiums_checker(kind):
    assert type(make(f"tandem/{kind.__name__}-v0").unwrapped) is kind
    if kind in ANSWERED:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            check_env(kind(), skip_render_check=True)


def _right(env, obs):
    """The best action of each known environment, from what is observed alone."""
    if isinstance(env, known.IdentityDict):
        return obs["inner"]["symbol"]
    if isinstance(env, known.IdentityImage):
        return int(np.argmax(obs[:, 0, 0])) // env.band
    if isinstance(env, known.Chain):
        return 1
    if isinstance(env, known.MatrixGame):
        return int(env.payoffs[int(obs)].argmax())
    if isinstance(env, (known.InfiniteHorizon, known.TerminatedTruncatedPair)):
        return env.action_space.sample()
    if isinstance(env, Recall):
        return env.symbol  # seen in the first step
    return obs


@pytest.mark.parametrize("kind", ANSWERED)
def test_the_best_policy_scores_the_optimum(kind):
    env, scores = kind(), []
    for seed in range(400):
        obs, score, over = env.reset(seed=seed)[0], 0.0, False
        while not over:
            obs, reward, terminated, truncated, _ = env.step(_right(env, obs))
            score, over = score + reward, terminated or truncated
        scores.append(score)
    spread = np.std(scores) / np.sqrt(len(scores))
    assert np.mean(scores) == pytest.approx(env.optimum, abs=4 * spread + 1e-9)


def test_chain_value_is_the_discounted_return_of_going_right():
    env, gamma = known.Chain(6), 0.9
    for state in range(5):
        env.reset(seed=0)
        env.place, total, discount, over = state, 0.0, 1.0, False
        while not over:
            _, reward, over, _, _ = env.step(1)
            total, discount = total + discount * reward, discount * gamma
        assert env.value(gamma, state) == pytest.approx(total)


def test_values_worked_by_hand():
    assert known.InfiniteHorizon().value(0.9) == pytest.approx(10)
    assert known.TerminatedTruncatedPair().value(0.5) == (1.0, 2.0)
    assert known.MatrixGame(((1.0, 3.0), (2.0, 0.0))).value(0.9).tolist() == [3.0, 2.0]
    assert known.MatrixGame(((1.0, 3.0), (2.0, 0.0))).optimum == 2.5


def test_the_pair_ends_both_ways():
    env, seen = known.TerminatedTruncatedPair(), set()
    for seed in range(20):
        obs, _ = env.reset(seed=seed)
        last, _, terminated, truncated, _ = env.step(0)
        assert (last == obs).all() and terminated != truncated
        seen.add((int(obs.argmax()), terminated))
    assert seen == {(0, True), (1, False)}


@pytest.mark.parametrize(("whole", "seen"), [("CartPole", [0, 2]), ("Pendulum", [0, 1])])
def test_positions_are_the_environment_s_without_velocities(whole: str, seen: list[int]) -> None:
    """To its end, which is that of an untrained policy, or the limit."""
    envs = [gymnasium.make(name) for name in (f"tandem/{whole}Positions-v0", f"{whole}-v1")]
    (obs, _), (all_of_it, _) = (env.reset(seed=1) for env in envs)
    assert envs[0].observation_space.shape == (2,) and envs[0].spec is not None
    envs[1].action_space.seed(1)
    over = False
    while not over:
        np.testing.assert_array_equal(obs, all_of_it[seen])
        assert obs in envs[0].observation_space
        action = envs[1].action_space.sample()
        (obs, *mine), (all_of_it, *others) = (env.step(action) for env in envs)
        assert mine[:3] == others[:3]
        over = mine[1] or mine[2]
