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
from tests.collect.test_collector import Always, Noisy, known
from tests.collect.test_copies import SMALL

PARTS = spaces.Dict(a=spaces.Discrete(3), b=spaces.Box(-1, 1, (2,)))
ONE, MANY = {"a": 1, "b": np.zeros(2)}, {"a": np.ones(4, int), "b": np.zeros((4, 2))}


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


def go_on(state: Any) -> None:
    agent("memory").predict(np.zeros((2, 4)), state)


def collect(actor: Any, noise: Any = None) -> None:
    collector = Collector(vectorize("CartPole-v1", 2), 0.9)
    collector.collect(3, actor, np.zeros((3, 2), np.int64) if noise is None else noise)


def go_on_collecting(actor: Any) -> None:
    one, again = (Collector(vectorize("CartPole-v1", 2), 0.9) for _ in range(2))
    one.collect(3, Noisy(), np.zeros((3, 2), np.int64))
    again.load_state(*one.state())
    again.collect(3, actor, np.zeros((3, 2), np.int64))


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
        case("collect/evaluation.py:EvaluationEnvs.ready", play, {"episodes": 0}),
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
        case(
            "collect/trained_agent.py:rows_of 2",
            act,
            {"obs": {**ONE, "c": 1}, "kind": "parts"},
            "give exactly these entries",
            {"obs": ONE},
        ),
        case(
            "collect/trained_agent.py:rows_of 3",
            act,
            {"obs": {**MANY, "a": 1}, "kind": "parts"},
            "give every entry an axis for the batch, of one length",
            {"obs": MANY},
        ),
        case(
            "collect/trained_agent.py:rows_of 3",
            act,
            {"obs": {**MANY, "a": 1}, "kind": "parts"},
            "or none of them",
            {"obs": ONE},
        ),
        case(
            "collect/trained_agent.py:_rows",
            act,
            {"obs": ["left"] * 4},
            "observations of the environment that the agent was trained on",
            {"obs": make("CartPole-v1").reset()[0]},
        ),
        case(
            "collect/trained_agent.py:_rows 2",
            act,
            {"obs": np.zeros(3)},
            "observations of the environment that the agent was trained on",
            {"obs": make("CartPole-v1").reset()[0]},
        ),
        case(
            "collect/trained_agent.py:Agent._state",
            go_on,
            {"state": np.zeros((3, 8))},
            "or None at first",
            {"state": None},
        ),
        case(
            "collect/trained_agent.py:Agent._state",
            go_on,
            {"state": np.zeros((3, 8))},
            "the state that the call before gave back",
            {"state": np.zeros((2, 8), np.float32)},
        ),
        case(
            "collect/trajectories.py:TrajectoryBuilder._allocate_extra",
            collect,
            {"actor": Always([0])},
            "return one row for each environment from `act`",
            {"actor": Always(0)},
        ),
        case(
            "collect/collector.py:Collector._begin",
            go_on_collecting,
            {"actor": Always(0)},
            "resume with the same network",
            {"actor": Noisy()},
        ),
        case(
            "spaces.py:refuse_others",
            lambda env: tandem.evaluate(agent(), env, episodes=1, max_steps=5),
            {"env": "Acrobot-v1"},
            "an environment like the one it was trained in",
            {"env": "CartPole-v1"},
        ),
    ],
)
def test_advice_on_agents(case) -> None:
    case.follow()


def test_an_agent_with_a_memory() -> None:
    env = make("CartPole-v1")
    obs, _ = env.reset(seed=0)
    with follows("collect/trained_agent.py:Agent.act") as advice:
        agent("memory").act(obs)
    code, _, rest = advice.fix.partition(", with ")
    assert rest == "state=None at first."
    names = {"agent": agent("memory"), "obs": obs, "state": None, "episode_start": True}
    for _ in range(3):
        exec(code, names)
        names["obs"], _, _, _, _ = env.step(names["action"])
        names["episode_start"] = False


def test_the_wrong_base_of_an_agent() -> None:
    members, names = {"choose_action": lambda self, obs: 0}, dict[str, Any]()
    with follows("collect/trained_agent.py:Agent.__init_subclass__") as advice:
        type("Mine", (tandem.Agent,), members)
    exec(advice.fix, names)
    type("Mine", (names["Agent"],), members)
