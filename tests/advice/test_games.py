"""The advice of `envs` on teams and on games of two."""

from __future__ import annotations

from typing import Any

import numpy as np
import pettingzoo
import pytest
from gymnasium import spaces

from tandem import trainer
from tandem.envs.factory import make
from tandem.envs.team import Team
from tandem.testing.team_games import Climbing
from tests.advice.net import case, follows
from tests.envs.test_versus import Pocket

BOX, THREE = spaces.Box(0, 2, (1,), np.float32), spaces.Discrete(3)


class WithoutInfos(Climbing):
    def reset(self, seed: Any = None, options: Any = None) -> Any:
        return super().reset(seed)[0], None


class Whole(pettingzoo.utils.BaseParallelWrapper):
    """Discrete actions for an agent that takes a box."""

    def action_space(self, agent: str) -> Any:
        return THREE

    def step(self, actions: Any) -> Any:
        return self.env.step({n: int(np.ravel(a)[0]) for n, a in actions.items()})


def play(env: Any, n: int = 2) -> None:
    made = Team(env) if hasattr(env, "possible_agents") else env
    made.reset(seed=0)
    for _ in range(n):
        if made.step(made.action_space.sample() * 0)[2]:
            return


def paid(result: Any, to: int) -> Any:
    obs, rewards, *rest = result
    return obs, dict(list(rewards.items())[:to]), *rest


class Unequal(Pocket):
    def __init__(self, choices: int) -> None:
        super().__init__()
        self.choices = choices

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(self.choices if agent == "p1" else 2, start=1)


def run(env: Any, opponents: int = 3) -> None:
    trainer.session("ppo", env, framework="torch", opponents=opponents, plots=False)


@pytest.mark.parametrize(
    "case",
    [
        case(
            "envs/team.py:Team._checked",
            play,
            {"env": WithoutInfos()},
            "return both from reset; infos may be {}",
            {"env": Climbing()},
        ),
    ],
)
def test_advice_on_games(case) -> None:
    case.follow()


def test_a_game_that_is_mistyped() -> None:
    with follows("envs/pettingzoo.py:by_id 2") as advice:
        make("mpe/simple_spred_v3")
    make(advice.quoted()).close()
    with follows("envs/pettingzoo.py:by_id 3") as advice:
        make("mpe/_mpe_utils")
    make(advice.quoted()).close()
