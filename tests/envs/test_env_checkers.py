"""Our environments and wrappers, by Gymnasium's and PettingZoo's checkers."""

import importlib
import inspect
import pkgutil
import warnings
from collections.abc import Callable
from itertools import chain
from typing import Any

import gymnasium
import numpy as np
import pettingzoo
import pytest
from gymnasium.utils.env_checker import check_env
from pettingzoo.test import api_test, parallel_api_test

from tandem import envs
from tandem.envs.action_masks import Masked
from tandem.envs.atari_fire import Fire
from tandem.envs.episode_budget import EpisodeBudget
from tandem.envs.factory import make
from tandem.envs.flat_actions import FlatActions
from tandem.envs.goals import WithGoal
from tandem.envs.plain import Plain
from tandem.envs.team import Team
from tandem.envs.versus import Versus
from tandem.testing import environments as known
from tandem.testing import team_games, turn_games
from tandem.testing.action_games import Parts
from tests.envs.test_plain import Old

# with a goal, as the agent API's hindsight takes it
Reach = type("Reach", (known.InfiniteHorizon,), {"goal": np.zeros(2, np.float32)})
MADE: dict[type, list[Callable[[], Any]]] = {
    Masked: [lambda: Masked(known.Forbidden(raises=False))],
    FlatActions: [lambda: FlatActions(Parts())],
    EpisodeBudget: [
        lambda: EpisodeBudget(known.InfiniteHorizon(10**9), 7),
        lambda: EpisodeBudget(gymnasium.make("CartPole-v1"), 3),
        lambda: EpisodeBudget(Team(team_games.Climbing()), 5),
    ],
    WithGoal: [lambda: WithGoal(Reach())],
    Plain: [lambda: Plain(Old())],
    Team: [lambda: Team(team_games.Climbing()), lambda: Team(team_games.TwoStep())],
    Versus: [lambda: Versus(turn_games.Nim()), lambda: Versus(turn_games.Nim(20))],
    Fire: [lambda: make("ALE/Breakout-v5")],
}


def test_none_is_left_out() -> None:
    found: set[type] = set()
    for module in pkgutil.iter_modules(envs.__path__):
        name = f"tandem.envs.{module.name}"
        classes = inspect.getmembers(importlib.import_module(name), inspect.isclass)
        here = {kind for _, kind in classes if kind.__module__ == name}
        found |= {kind for kind in here if issubclass(kind, gymnasium.Env)}
    assert found == set(MADE)


@pytest.mark.parametrize("make_one", chain(*MADE.values()))
def test_gymnasium_finds_nothing(make_one: Callable[[], Any]) -> None:
    env = make_one()
    with warnings.catch_warnings():
        # of bounds that are infinite, and of wrappers and old seeds, which are what is checked here
        warnings.filterwarnings("ignore", message=".*(infinity|unwrapped|`seed` function).*")
        check_env(env, skip_render_check=True)
    env.close()


TEAMS = [team_games.Climbing, team_games.TwoStep, team_games.Landmarks, team_games.Leaving]
CHECKED = [
    *((pettingzoo.ParallelEnv, parallel_api_test, game) for game in TEAMS),
    *((pettingzoo.AECEnv, api_test, game) for game in (turn_games.Nim, turn_games.TicTacToe)),
]


@pytest.mark.parametrize("base, checks, game", CHECKED)
def test_pettingzoo_finds_nothing_in_teams_and_games_of_turns(base, checks, game) -> None:
    # ours need not be installed with it: only its checker asks for its class
    kind = type(game.__name__, (game, base), {})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        checks(kind(), num_cycles=50)
