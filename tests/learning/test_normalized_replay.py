"""Replayed observations and rewards are normalized by the statistics of that moment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import TransformObservation, TransformReward

import tandem
from tandem import algorithms
from tandem.learning.loop import Loop
from tandem.networks.plan import Twin
from tandem.testing import contracts
from tandem.testing import environments as games
from tandem.testing.goal_games import BitFlip

BOTH = {"normalize_observations": True, "normalize_rewards": True}
SMALL: dict[str, Any] = dict(
    hidden=(8,), batch_size=16, learning_starts=40, train_every=8, envs=2, gamma=0.5, steps=120
)


def far() -> Any:
    """IdentityBox, seen in units that no network would like, and paid so."""
    box = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    env: Any = TransformObservation(games.IdentityBox(), lambda x: np.float32(50) + 20 * x, box)
    return TransformReward(env, lambda r: 1000.0 * float(r) - 3.0)


def watched(name: str, env: Any = far, **more: Any) -> tuple[Loop, list[Any], list[Any]]:
    """A run at its end; what came in, and what each call of updates was given, with the weights."""
    loop = contracts.begin(algorithms.get(name), env, "torch", **SMALL | BOTH | more)
    return loop, *watch(loop)


def watch(loop: Any) -> tuple[list[Any], list[Any]]:
    """The rest of a run: what came in, and the calls of updates."""
    came: list[Any] = []
    given: list[Any] = []
    learner = loop.learner
    learn, run = learner.learn, learner._run
    learner.learn = lambda t, span: (came.append(t), learn(t, span))[1]
    learner._run = lambda b: (given.append((len(came), b, contracts.weights(loop))), run(b))[1]
    contracts.train(loop)
    return came, given


@pytest.mark.parametrize("name, n", [("sac", 3), ("td3", 1)])
def test_updates_see_the_statistics_of_now_and_the_buffer_what_came(name: str, n: int) -> None:
    loop, came, given = watched(name, n_step=n)
    for count, batch, weights in given:
        rows = np.concatenate([t.obs.reshape(-1, 1) for t in came[:count]]).astype(np.float64)
        found = {k: x for k, x in weights.items() if k.endswith(("1/mean", "1/variance"))}
        # the policy and two critics, and their targets
        assert len(found) == 2 * (5 if name == "sac" else 6)
        for k, x in found.items():
            wanted = rows.mean(0) if k.endswith("mean") else rows.var(0)
            np.testing.assert_allclose(x, wanted, rtol=1e-5)
        assert batch.obs.min() > 20
        assert set(batch.obs.ravel()) <= set(rows.astype(np.float32).ravel())
        returns = discounted(came[:count])
        ring = loop.learner.ring  # type: ignore[attr-defined]
        scaled = np.clip(ring.column("reward")[: count * 8] / returns.std(), -10, 10)
        if n == 1:
            assert np.isclose(batch.reward.reshape(-1, 1), scaled, rtol=1e-5).any(1).all()
    raw = np.concatenate([t.reward.ravel() for t in came])
    assert ring.column("reward")[: len(raw)].tolist() == raw.tolist() and raw.min() < -500
    assert abs(batch.reward).max() <= 10 * 1.75  # each of three steps is cut at 10, then summed
    # who acts has the statistics of the last updates
    actor = loop.networks["actor"]
    assert isinstance(actor, Twin)
    np.testing.assert_array_equal(actor.weights["1/mean"], weights["actor/1/mean"])


def test_sequences_are_kept_as_they_came_too() -> None:
    more = {"rollout": 5, "envs": 2, "steps": 80, "shared": False, "gamma": 0.5, "hidden": (8,)}
    more |= {"replay": "uniform", "replay_starts": 2, "replay_ratio": 3.0}
    loop = contracts.begin(algorithms.get("a3c"), far, "torch", **BOTH | more)
    came, given = watch(loop)
    assert len(came) == 8 and len(given) > 16
    for count, batch, weights in given:
        found = {k: x for k, x in weights.items() if k.endswith(("1/mean", "1/variance"))}
        assert len(found) == 4
        if count > 1:
            rows = np.concatenate([t.obs.reshape(-1, 1) for t in came[: count - 1]])
            for k, x in found.items():
                wanted = rows.mean(0) if k.endswith("mean") else rows.var(0)
                np.testing.assert_allclose(x, wanted, rtol=1e-4)
        returns = discounted(came[:count]).std()
        reward = np.concatenate([t.reward.ravel() for t in came[:count]])
        scaled = np.append(np.clip(reward / returns, -10, 10), 0)  # the row that follows has none
        within = ~batch.extra["last"].ravel()  # where a limit ends an episode, a value is added
        found = np.isclose(batch.reward.reshape(-1, 1), scaled, rtol=1e-4).any(1)
        assert found[within].all() and within.sum() > 8
        assert batch.obs.min() > 20
    kept = loop.learner.buffer.draw(np.random.default_rng(0), 2, 1.0)  # type: ignore[attr-defined]
    assert kept.batch.reward.min() < -500


def discounted(trajectories: list[Any]) -> Any:
    running, found = np.zeros(2), []
    for t in trajectories:
        for reward, last in zip(t.reward, t.last, strict=True):
            running = 0.5 * running + reward
            found.append(running.copy())
            running[last] = 0.0
    return np.array(found)


def test_what_hindsight_judges_is_scaled_as_what_came() -> None:
    """A step of BitFlip is paid -1, or 0 where its goal is reached."""
    more = {"hindsight": "future", "eval_every": 0, "framework": "torch", "compile": "no"}
    run = tandem.session("dqn", lambda: BitFlip(4), **SMALL | {"normalize_rewards": True} | more)
    came, given = watch(run.loop)
    count, batch, _ = given[-1]
    unit = -1 / np.sqrt(discounted(came[:count]).var() + 1e-8)
    assert np.isclose(batch.reward, unit, rtol=1e-5).any() and (batch.reward == 0).any()
    assert (np.isclose(batch.reward, unit, rtol=1e-5) | (batch.reward == 0)).all()


def test_networks_that_begin_anew_keep_the_statistics() -> None:
    loop, _, _ = watched("sac", reset_every=11)
    assert loop.learner.updates == 11  # the last of them began anew
    for role in ("actor", "q1", "q1_target"):
        weights = loop.backend.networks[role].read()
        (mean,) = (x for k, x in weights.items() if k.endswith("1/mean"))
        assert mean[0] > 20


@pytest.mark.parametrize("name", ["dqn", "crossq", "impala"])
def test_runs_go_on_exactly(name: str) -> None:
    """Blocks without updates too, in which statistics move and who acts has those of before."""
    kind, env = algorithms.get(name), far if name == "crossq" else "CartPole-v1"
    given = SMALL | {"updates_per_step": 0.05}
    if name == "impala":
        given = dict(rollout=5, replay="prioritized", replay_starts=2, recurrent=4, envs=2)
        given["hidden"] = (8,)
    contracts.resumes(kind, env, "torch", updates=9, **BOTH | given | {"steps": 400})


def test_an_agent_acts_by_the_statistics_that_its_run_ended_with(tmp_path: Path) -> None:
    given = SMALL | BOTH | {"framework": "torch", "eval_every": 0, "out": tmp_path / "run"}
    run = tandem.session("sac", far, **given | {"compile": "no"})
    list(run)
    agent, loaded = run.agent(), tandem.load(tmp_path / "run", which="last")
    obs = np.float32([[20], [50], [90]])
    acted = [loaded.act(x) for x in obs]
    assert [agent.act(x).tolist() for x in obs] == [x.tolist() for x in acted]
    mean = run.backend.networks["actor"].read()["1/mean"]
    assert loaded.networks["actor"].weights["1/mean"].tolist() == mean.tolist() and mean[0] > 20
