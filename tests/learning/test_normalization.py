"""Running statistics are those of all rows, and reach the networks and the next sitting."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import wrappers
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from hypothesis import given
from hypothesis import strategies as st

from tandem import algorithms, trainer
from tandem.learning.normalization import Moments, ObservationMoments, RewardScale, RewardStandard
from tandem.networks.plan import Twin
from tandem.settings import declared
from tandem.spaces import Leaf
from tandem.testing.environments import InfiniteHorizon
from tandem.types import Cuts, Trajectory
from tests.runs.shared import QUICK

PPO = QUICK | dict(eval_episodes=0, envs=2, rollout=16, batch_size=16, epochs=1)
NORMALIZED = ("normalize_advantage", "normalize_observations", "normalize_rewards")
DETAILS: dict[str, Any] = dict.fromkeys((*NORMALIZED, "standardize_rewards"), (False, True))
DETAILS |= dict(orthogonal=(False, True), entropy=(0.0, 0.01), activation=("relu", "tanh"))
DETAILS |= dict(learning_rate=(3e-4, "3e-4:0"), max_grad_norm=(1e9, 0.5), adam_epsilon=(1e-8, 1e-5))
NOTED: dict[str, Any] = {"framework": "torch", "plots": False, "steps": 64, "hidden": (4,)}
NOTED |= {"rollout": 4, "batch_size": 4}
EACH = (
    "NormalizeObservation keeps its statistics in the environment: each evaluation(.|\\n)*remove "
)
EACH += "NormalizeObservation and give normalize_observations=True."
LINEAR = {"network": lambda space: torch.nn.Linear(*space.shape, 4)}


def trajectory(reward: Any, last: Any, valid: Any = None) -> Trajectory:
    reward, last = np.array(reward, np.float32), np.array(last, np.bool_)
    valid = np.ones_like(last) if valid is None else np.array(valid, np.bool_)
    none, obs = np.zeros(0, np.int64), np.zeros((*reward.shape, 1), np.float32)
    cuts = Cuts(none, none, obs[:0, 0])
    return Trajectory(obs, reward, reward, reward, last, valid, cuts, obs[0])


@given(
    st.lists(st.integers(0, 20), min_size=1, max_size=8), st.integers(0, 99), st.floats(-1e4, 1e4)
)
def test_moments_are_those_of_all_rows_at_once(sizes: list[int], seed: int, offset: float) -> None:
    rng = np.random.default_rng(seed)
    scale = [1, 10, 0]
    batches = [np.float32(offset + rng.standard_normal((n, 3)) * scale) for n in sizes]
    moments, rows = Moments(3), np.concatenate(batches).astype(np.float64)
    for batch in batches:
        moments.add(batch)
    assert moments.count == len(rows)
    if len(rows):
        np.testing.assert_allclose(moments.mean, rows.mean(0), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(moments.variance, rows.var(0), rtol=1e-6, atol=1e-6)
    other = Moments(3)
    other.load_state(moments.state())
    for m in (moments, other):
        m.add(np.ones((2, 3), np.float32))
    assert moments.mean.tobytes() == other.mean.tobytes()
    assert moments.variance.tobytes() == other.variance.tobytes()


def test_rows_that_only_reset_do_not_count_and_symbols_and_pictures_are_left_alone() -> None:
    spec = {
        "box": Leaf("box", (2,), "float32", (), (-9.0,) * 2, (9.0,) * 2),
        "symbol": Leaf("discrete", (), "int64", (3,)),
        "picture": Leaf("box", (2, 2, 1), "uint8", (), (0.0,) * 4, (255.0,) * 4),
    }
    seen = ObservationMoments(spec)
    box = np.arange(8, dtype=np.float32).reshape(2, 2, 2)
    obs = dict(
        box=box, symbol=np.zeros((2, 2), np.int64), picture=np.zeros((2, 2, 2, 2, 1), np.uint8)
    )
    seen.add(obs, np.array([[True, True], [False, True]]))
    assert list(seen.moments) == ["box"]
    assert seen.moments["box"].mean.tolist() == [(0 + 2 + 6) / 3, (1 + 3 + 7) / 3]
    found = seen.weights("0/obs/")
    assert list(found) == ["0/obs/0/box/1/mean", "0/obs/0/box/1/variance"]
    assert {x.dtype for x in found.values()} == {np.dtype(np.float32)}
    for number in (0, 3e25):  # whose variance float32 does not hold
        seen.moments["box"].add(np.full((1, 2), number, np.float32))
    assert all(np.isfinite(x).all() for x in seen.weights().values())


def test_rewards_are_divided_by_the_deviation_of_discounted_returns() -> None:
    """gamma 0.5: environment 0 returns 2, then 2 + 0.5 * 2 = 3, its episode ends, then 4."""
    scale = RewardScale(2, 0.5)
    reward, last = [[2, 0], [2, 0], [4, 0]], [[False, False], [True, False], [False, False]]
    scaled = scale(trajectory(reward, last))
    deviation = np.sqrt(np.var([2, 3, 4, 0, 0, 0]) + 1e-8)
    np.testing.assert_allclose(scaled.reward, np.array(reward) / deviation, rtol=1e-6)
    assert scaled.reward.dtype == np.float32 and scale.running.tolist() == [4.0, 0.0]
    scale(trajectory([[1, 1]], [[False, False]]))
    assert scale.running.tolist() == [3.0, 1.0], "the return goes on in the next block"
    assert scale.moments.count == 8


def test_rewards_are_clipped_and_reset_rows_left_out() -> None:
    scale = RewardScale(1, 0.9)
    still = scale(trajectory([[0.0]] * 500, [[False]] * 500))
    assert (still.reward == 0).all()
    assert scale(trajectory([[1000.0]], [[False]])).reward.max() == 10.0
    fresh = RewardScale(1, 0.9)
    fresh(trajectory([[1], [0], [1]], [[True], [False], [False]], [[True], [False], [True]]))
    assert fresh.moments.count == 2 and fresh.moments.mean.tolist() == [1.0]


def test_rewards_are_standardized_by_all_that_came_so_far() -> None:
    standard = RewardStandard()
    reward, last = [[1, 3], [99, 5]], [[False, False], [False, True]]
    first = standard(trajectory(reward, last, [[True, True], [False, True]]))
    valid = np.array([1.0, 3.0, 5.0])  # 99 came with a step that only reset
    wanted = (np.array(reward) - 3) / valid.std()
    wanted[1, 0] = 10
    np.testing.assert_allclose(first.reward, wanted)
    assert first.reward.dtype == np.float32
    other = RewardStandard()
    other.load_state(standard.state())
    seen = np.array([1.0, 3.0, 5.0, 7.0, 7.0])
    for s in (standard, other):
        later = s(trajectory([[7, 7]], [[False, False]]))
        np.testing.assert_allclose(later.reward, [[(7 - seen.mean()) / seen.std()] * 2], rtol=1e-6)


@pytest.mark.parametrize("name", DETAILS)
def test_each_of_the_ten_details_of_ppo_has_a_source_and_does_something(name: str) -> None:
    (source,) = (s.source for s in declared(algorithms.get("ppo").Settings) if s.name == name)
    assert source
    prints = []
    usual = PPO | {"epochs": 2, "normalize_advantage": False, "steps": 64}
    for value in DETAILS[name]:
        run = trainer.session("ppo", "Pendulum-v1", **usual | {name: value})
        list(run.events())
        prints.append(run.fingerprint())
    assert prints[0] != prints[1]


def test_a_run_publishes_its_statistics_and_takes_them_up_again(tmp_path: Path) -> None:
    given = PPO | {"vectorization": "plain", "steps": 96, "out": tmp_path / "run"}
    given |= {"normalize_observations": True, "normalize_rewards": True}
    run = trainer.session("ppo", "Pendulum-v1", **given)
    seen: list[Any] = []
    real = run.loop.learner.learn
    run.loop.learner.learn = lambda t, span: (seen.append(t.obs), real(t, span))[1]
    list(run.events(64))
    rows = np.concatenate(seen).reshape(-1, 3).astype(np.float64)
    assert len(rows) == 64
    for role in ("actor", "critic"):
        weights = run.backend.networks[role].read()
        np.testing.assert_allclose(weights["1/mean"], rows.mean(0), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(weights["1/variance"], rows.var(0), rtol=1e-5)
    actor = run.backend.networks["actor"]
    normal = Twin(actor.plan[:2], actor.read())(rows.astype(np.float32))
    assert normal.mean(0) == pytest.approx(np.zeros(3), abs=1e-4)
    assert normal.std(0) == pytest.approx(np.ones(3), abs=1e-3)
    resumed = trainer.session(resume=tmp_path / "run")
    mine, theirs = (r.loop.learner.state(True)[1] for r in (run, resumed))
    assert {n: x.tobytes() for n, x in mine.items()} == {n: x.tobytes() for n, x in theirs.items()}
    assert len(mine) == 7


# Wrappers whose statistics no evaluation shares


def normalized() -> Any:
    return wrappers.TimeLimit(wrappers.NormalizeObservation(InfiniteHorizon()), 5)


def paid() -> Any:
    return wrappers.NormalizeReward(InfiniteHorizon())


def frozen() -> Any:
    env = wrappers.NormalizeObservation(InfiniteHorizon())
    env.update_running_mean = False  # of statistics that were loaded
    return env


def notes(algorithm: str, env: Any, **given: Any) -> str:
    run = trainer.session(algorithm, env, **{**NOTED, **given})
    run.close()
    run.vector.close()
    return "\n".join(run.notes)


@pytest.mark.parametrize(
    "env, given, told",
    [
        (normalized, {}, EACH),
        (lambda: SyncVectorEnv([normalized] * 2), {}, EACH),
        (lambda: AsyncVectorEnv([normalized] * 2), {}, EACH),
        (
            lambda: wrappers.vector.NormalizeObservation(SyncVectorEnv([InfiniteHorizon] * 2)),
            {},
            EACH,
        ),
        (normalized(), {}, "in the environment: every loaded agent starts with empty ones"),
        (normalized, LINEAR, "NormalizeObservation and scale by constants"),
        (paid, {}, "Fix: remove NormalizeReward and give normalize_rewards=True."),
    ],
)
def test_a_wrapper_that_normalizes_is_named_with_the_setting(
    env: Any, given: Any, told: str
) -> None:
    assert re.search(told, notes("ppo", env, **given))


@pytest.mark.parametrize(
    "env, given", [(paid, {"eval_env": InfiniteHorizon}), (InfiniteHorizon, {}), (frozen, {})]
)
def test_a_note_comes_only_with_statistics_that_evaluations_have(env: Any, given: Any) -> None:
    assert "ormaliz" not in notes("ppo", env, **given)


def test_a_wrapper_of_the_evaluation_environment_alone_is_named() -> None:
    for eval_env, name in ((normalized, "NormalizeObservation"), (paid, "NormalizeReward")):
        given = {**NOTED, "eval_env": eval_env, "eval_episodes": 1, "final_episodes": 1}
        assert f"remove {name}" in "\n".join(trainer.train("ppo", InfiniteHorizon, **given).notes)
