"""How each algorithm acts: best actions without noise, others with it."""

from __future__ import annotations

import numpy as np
import pytest

from tandem import algorithms
from tandem.collect.actor import PolicyActor, forwards
from tandem.settings import Schedule
from tandem.testing import fakes
from tandem.types import tree_map
from tests.algorithms.cases import CASES

ROWS = 200


@pytest.mark.parametrize("name", CASES)
def test_without_noise_the_action_is_the_best_one_and_with_noise_it_explores(name) -> None:
    case = CASES[name]
    greedy = case.algorithm in ("dqn", "nstep_q", "pqn", "vdn", "qmix")
    explore = {"epsilon": Schedule(0.5)} if greedy else {}
    algorithm, backend = fakes.build(
        case.algorithm, "torch", case.action, case.observation, **(case.settings | explore)
    )
    networks = forwards(backend, algorithm.acting)
    actor = PolicyActor(type(algorithm), algorithm.settings, case.action, networks)
    obs = fakes.observations(case.observation, (ROWS,), np.random.default_rng(0))
    if case.action.masked:
        obs[fakes.MASK][:] = 1
    state = actor.initial_state(ROWS)
    best, again = (actor.act(obs, state, None)[0] for _ in range(2))
    noise = algorithm.exploration_noise(
        algorithm.settings, case.action, np.random.default_rng(1), (1, ROWS), np.zeros(1)
    )
    explored = actor.act(obs, state, tree_map(lambda x: x[0], noise))[0]
    np.testing.assert_array_equal(best, again)
    assert explored.shape == best.shape == (ROWS, *case.action.shape)
    assert (explored != best).mean() > 0.1


def test_choices_have_a_class_of_their_own_where_the_paper_is_another() -> None:
    for name, action, kind in (
        ("sac", fakes.DISCRETE, "DiscreteSAC"),
        ("sac", fakes.BOX, "SAC"),
        ("sac", fakes.MULTI, "SAC"),
        ("maddpg", fakes.TEAM_DISCRETE, "DiscreteMADDPG"),
        ("maddpg", fakes.TEAM_BOX, "MADDPG"),
        ("ppo", fakes.DISCRETE, "PPO"),
    ):
        found = algorithms.get(name, action)
        assert found.__name__ == kind and algorithms.for_actions(found, action) is found
    own = type("SAC", (algorithms.get("sac"),), {})
    assert algorithms.for_actions(own, fakes.DISCRETE) is own
