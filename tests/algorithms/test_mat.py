"""The multi-agent transformer: who is told what, that acting and learning are of one policy, and
that agents who act one after the other find what others do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tandem
from tandem import algorithms
from tandem.algorithms.mat import before
from tandem.collect.actor import forwards
from tandem.envs.team import Team
from tandem.spaces import MASK
from tandem.testing import contracts, fakes, team_games
from tandem.types import tree_map

pytest.importorskip("torch")
MAT = algorithms.get("mat")
SMALL: dict[str, Any] = {"hidden": (8,), "embedding": 8, "heads": 2, "blocks": 2}
ONE, BOX = (algorithms.teams.one(a) for a in (fakes.TEAM_DISCRETE, fakes.TEAM_BOX))


def climbing() -> Any:
    return Team(team_games.Climbing())


def test_each_agent_is_told_of_the_one_before_it() -> None:
    told = before(np.array([[2, 0, 3]]), ONE)
    assert told.argmax(-1).tolist() == [[0, 3, 1]] and (told.sum(-1) == 1).all()
    assert told.shape == (1, 3, 5)
    moves = np.arange(6, dtype=np.float32).reshape(1, 3, 2) + 1
    assert before(moves, BOX).tolist() == [[[0, 0], [1, 2], [3, 4]]]


@pytest.mark.parametrize(
    ("action", "observation"),
    [(fakes.TEAM_MASKED, fakes.MASKED_TEAM), (fakes.TEAM_BOX, fakes.TEAM)],
)
def test_what_is_learned_of_is_the_policy_that_acted(action: Any, observation: Any) -> None:
    """All agents at once, told what was taken, draw by the same noise what was drawn one by one."""
    algorithm, backend = fakes.build("mat", "torch", action, observation, orthogonal=False, **SMALL)
    rng, networks = np.random.default_rng(0), forwards(backend, algorithm.acting)
    obs = fakes.observations(observation, (50,), rng)
    if action.masked:
        obs[MASK][:, ::4] = 1
    noise = algorithm.exploration_noise(algorithm.settings, action, rng, (50,), np.zeros(1))
    taken = algorithm.act(algorithm.settings, action, networks, obs, (), noise)[0]
    batch = fakes.batches(algorithm, observation, action, 1, 50)
    batch = tree_map(lambda x: x[0], batch._replace(settings={}, obs=(), action=()))
    rows = algorithm.rows(obs)
    flat = taken.reshape(-1, *taken.shape[2:])
    algorithm.encoder, algorithm.actor, algorithm.critic = (
        backend.networks[n].predict for n in ("encoder", "actor", "critic")
    )
    out, value = algorithm.outputs(batch._replace(obs=rows, action=flat))
    again = algorithm.policy.sample(out, noise.reshape(150, *noise.shape[2:]))
    np.testing.assert_allclose(again, flat, rtol=1e-4, atol=1e-5)
    assert value.shape == (150,) and len(np.unique(np.round(flat, 3))) > 3
    if action.masked:
        allowed = obs[MASK].reshape(50, 3, 4)
        assert np.take_along_axis(allowed, taken[..., None], -1).all()


def test_no_agent_sees_a_later_one_act_and_all_see_what_all_observe() -> None:
    given = {"orthogonal": False, **SMALL}
    _, backend = fakes.build("mat", "torch", fakes.TEAM_DISCRETE, fakes.TEAM, **given)
    networks, rng = forwards(backend, ("encoder", "actor")), np.random.default_rng(0)
    agents = fakes.observations(fakes.TEAM, (1,), rng)["agents"]
    encoded = networks["encoder"](agents)
    for changed in range(3):
        inputs = [{"encoded": encoded, "before": before(np.array([[1, 1, 1]]), ONE)}]
        other = np.where(np.arange(3) == changed, 2, [[1, 1, 1]])
        inputs.append({"encoded": encoded, "before": before(other, ONE)})
        one, two = (networks["actor"](x)[0] for x in inputs)
        moved = np.abs(one - two).max(-1) > 1e-6
        assert moved.tolist() == [i > changed for i in range(3)]
        seen = agents.copy()
        seen[0, changed, 0] += 1
        assert (np.abs(networks["encoder"](seen) - encoded).max(-1) > 1e-6).all()


@pytest.mark.slow
def test_agents_who_know_of_each_other_climb() -> None:
    """11 stands beside -30: of agents who draw independently, MAPPO takes 7."""
    sizes = {"hidden": (16,), "embedding": 16, "envs": 8, "rollout": 16, "batch_size": 128}
    rates = {"learning_rate": "5e-3:1e-3", "clip": 0.2, "entropy": "0.3:0", "gamma": 0.9}
    loop = contracts.begin(MAT, climbing, "torch", steps=4000, **sizes, **rates)
    contracts.train(loop)
    assert contracts.score(loop, climbing) == 11.0


def test_a_saved_team_acts_as_it_did(tmp_path: Path) -> None:
    given = {"steps": 128, "envs": 4, "rollout": 8, "batch_size": 16, "eval_episodes": 3, **SMALL}
    quiet = {"framework": "torch", "plots": False, "tensorboard": False}
    result = tandem.train("mat", climbing, out=tmp_path, **given, **quiet)
    agent = tandem.load(tmp_path, which="last")
    found = tandem.evaluate(agent, env=climbing, episodes=3)
    assert found.mean == result.evaluation.mean
