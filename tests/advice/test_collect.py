"""The advice of `collect`: to those who evaluate, and to those who act with a trained agent."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import tandem
from tandem.collect.collector import Collector
from tandem.collect.evaluation import evaluate
from tandem.envs.factory import make, vectorize
from tests.advice.net import case, follows
from tests.advice.worlds import Toy
from tests.collect.test_collector import Always, known
from tests.collect.test_copies import SMALL

PARTS = spaces.Dict(a=spaces.Discrete(3), b=spaces.Box(-1, 1, (2,)))


class Seen(Toy):
    def seen(self) -> Any:
        return {"a": self.t % 3, "b": np.zeros(2, np.float32)}


class Allowing(Toy):
    """Its method says that the first action is not allowed."""

    def __init__(self) -> None:
        super().__init__(action_space=spaces.Discrete(3))

    def action_masks(self) -> list[int]:
        return [0, 1, 1]


@cache
def agent(kind: str = "CartPole") -> Any:
    more: dict[str, Any] = {"recurrent": 8, "sequence": 8} if kind == "memory" else {}
    env = (lambda: Seen(PARTS)) if kind == "parts" else "CartPole-v1"
    return tandem.train("ppo", env, framework="torch", seed=0, **SMALL, **more).agent


def act(obs: Any, kind: str = "CartPole") -> None:
    agent(kind).act(obs)


def collect(actor: Any, noise: Any = None) -> None:
    collector = Collector(vectorize("CartPole-v1", 2), 0.9)
    collector.collect(3, actor, np.zeros((3, 2), np.int64) if noise is None else noise)


play = partial(evaluate, Always(0), known.InfiniteHorizon)


def test_an_agent_that_was_trained_with_masks_says_how_to_give_them() -> None:
    trained = tandem.train("ppo", Allowing, framework="torch", seed=0, **SMALL).agent
    env = make(Allowing)
    obs, _ = env.reset()
    for seen in (obs, np.stack([obs] * 2), {"obs": obs}):
        with follows("collect/trained_agent.py:rows_of") as advice:
            trained.act(seen)
    found = eval(advice.fix.removeprefix("give it, as in ")[:-1], {"agent": trained, **locals()})
    assert found in (1, 2)


@pytest.mark.parametrize(
    "case",
    [
        case(
            "collect/evaluation.py:EvaluationEnvs.__init__",
            play,
            {"episodes": 1, "environments": 0},
        ),
        case(
            "collect/evaluation.py:EvaluationEnvs.ready 2",
            play,
            {"episodes": 1, "max_steps": -1},
        ),
    ],
)
def test_advice_on_agents(case) -> None:
    case.follow()
