import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from tandem.envs.factory import make
from tandem.spaces import Leaf
from tandem.testing import environments as known
from tandem.testing import fakes
from tandem.testing.memory_games import Recall
from tandem.types import leaves

ANSWERED = (*known.KNOWN, Recall)


@pytest.mark.parametrize("kind", ANSWERED + known.FAULTY)
def test_is_registered_under_its_name_and_passes_gymnasiums_checker(kind):
    assert type(make(f"tandem/{kind.__name__}-v0").unwrapped) is kind
    if kind in ANSWERED:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            check_env(kind(), skip_render_check=True)


RIGHT = {  # the best actions; of the others it is what is observed
    known.IdentityDict: lambda env, obs: obs["inner"]["symbol"],
    known.IdentityImage: lambda env, obs: int(np.argmax(obs[:, 0, 0])) // env.band,
    known.Chain: lambda env, obs: 1,
    known.MatrixGame: lambda env, obs: int(env.payoffs[int(obs)].argmax()),
    known.InfiniteHorizon: lambda env, obs: env.action_space.sample(),
    known.TerminatedTruncatedPair: lambda env, obs: env.action_space.sample(),
    Recall: lambda env, obs: env.symbol,  # seen in the first step
}


@pytest.mark.parametrize("kind", ANSWERED)
def test_the_best_policy_scores_the_optimum(kind):
    env, scores, right = kind(), [], RIGHT.get(kind, lambda env, obs: obs)
    for seed in range(400):
        obs, score, over = env.reset(seed=seed)[0], 0.0, False
        while not over:
            obs, reward, terminated, truncated, _ = env.step(right(env, obs))
            score, over = score + reward, terminated or truncated
        scores.append(score)
    spread = np.std(scores) / np.sqrt(len(scores))
    assert np.mean(scores) == pytest.approx(env.optimum, abs=4 * spread + 1e-9)


def test_values_by_hand_and_by_discounted_returns_and_ends_of_both_kinds():
    env, gamma = known.Chain(6), 0.9
    for state in range(5):
        env.reset(seed=0)
        env.place, total, discount, over = state, 0.0, 1.0, False
        while not over:
            _, reward, over, _, _ = env.step(1)
            total, discount = total + discount * reward, discount * gamma
        assert env.value(gamma, state) == pytest.approx(total)
    assert known.InfiniteHorizon().value(0.9) == pytest.approx(10)
    assert known.TerminatedTruncatedPair().value(0.5) == (1.0, 2.0)
    assert known.MatrixGame(((1.0, 3.0), (2.0, 0.0))).value(0.9).tolist() == [3.0, 2.0]
    assert known.MatrixGame(((1.0, 3.0), (2.0, 0.0))).optimum == 2.5
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


PICTURE = Leaf("box", (3, 8, 8), "uint8", (), (0.0,) * 192, (255.0,) * 192)
BITS = Leaf("multibinary", (5,), "int8")
SHIFTED = Leaf("discrete", (), "int64", (3,), start=2)


@pytest.mark.parametrize(
    "spec", [fakes.VECTOR, fakes.BOX, fakes.MULTI, PICTURE, BITS, SHIFTED], ids=lambda s: s.kind
)
def test_values_are_elements_of_their_space(spec) -> None:
    x = fakes.values(spec, (50, 4), np.random.default_rng(0))
    assert x.shape == (50, 4, *spec.shape) and x.dtype == spec.dtype
    if spec.low:
        low, high = (np.reshape(b, spec.shape) for b in (spec.low, spec.high))
        assert (x >= low).all() and (x <= high).all()
    elif spec.sizes:
        highest = np.array(spec.sizes) - 1 + spec.start
        assert x.min() == spec.start and (x.reshape(200, -1).max(0) == highest).all()
    else:
        assert set(np.unique(x)) == {0, 1}


@pytest.mark.parametrize(
    "name, action", [("dqn", fakes.DISCRETE), ("ppo", fakes.MULTI), ("sac", fakes.BOX)]
)
def test_batches_feed_an_algorithm(name, action) -> None:
    observation = {"a": fakes.VECTOR, "b": fakes.MULTI}
    algorithm, backend = fakes.build(name, "torch", action, observation, hidden=(8,))
    made = fakes.batches(algorithm, observation, action, 4, 6)
    assert all(x.shape[:2] == (4, 6) for x in leaves(made._replace(settings={})))
    assert all(x.shape == (4,) and x.dtype == np.float32 for x in made.settings.values())
    assert backend.compile(algorithm.update)(fakes.first(made, 3)).applied == 3
