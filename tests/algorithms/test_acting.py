"""How each algorithm acts: best actions without noise, others with it."""

from __future__ import annotations

import numpy as np
import pytest

from tandem.collect.actor import PolicyActor, forwards
from tandem.settings import Schedule
from tandem.testing import fakes
from tandem.types import tree_map
from tests.algorithms.cases import CASES

ROWS = 200


@pytest.mark.parametrize("name", CASES)
def test_without_noise_the_action_is_the_best_one_and_with_noise_it_explores(name) -> None:
    case = CASES[name]
    greedy = case.algorithm in ("dqn", "nstep_q", "vdn", "qmix")
    explore = {"epsilon": Schedule(0.5)} if greedy else {}
    algorithm, backend = fakes.build(
        case.algorithm, "torch", case.action, case.observation, **case.settings, **explore
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
