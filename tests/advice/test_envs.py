"""The advice of `envs` on environments of one agent and on vectors of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tandem.envs import factory
from tandem.envs.factory import vectorize
from tandem.envs.goals import WithGoal
from tandem.envs.plain import Plain
from tandem.envs.stepped import Stepped
from tests.advice.net import case
from tests.advice.worlds import Toy, steps


def step(n: int = 1, mode: Any = "plain", **toy: Any) -> None:
    steps(vectorize(lambda: Toy(**toy), n, mode=mode))


def vector(mode: str = "native", n: int = 2, kwargs: Any = None, env: Any = "CartPole-v1") -> None:
    steps(vectorize(env, n, mode=mode, kwargs=kwargs))


def stepped(*environments: Any) -> None:
    steps(Stepped("Toy", environments))


def resumes(env: Any) -> None:
    if fault := factory.resume_fault(env, mode="plain"):
        raise fault


class Unseeded(Toy):
    """The last rewards of its episodes are drawn from a generator that no seed reaches."""

    def step(self, action: Any) -> Any:
        self.reward = 0.0 if self.t < 7 else np.random.default_rng().random()
        return super().step(action)


class Seeded(Toy):
    def step(self, action: Any) -> Any:
        self.reward = self.np_random.random()
        return super().step(action)


class Aimed(Toy):
    """Has a goal once it was reset."""

    def reset(self, **given: Any) -> Any:
        self.goal = np.zeros(2)
        return super().reset(**given)


def plain(env: Any, **more: Any) -> None:
    old = Plain(env, **more)
    old.reset(seed=0)
    old.step(1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        case("envs/factory.py:vectorize", vector, {"n": 0}),
        case(
            "envs/factory.py:resume_fault_between",
            resumes,
            {"env": Unseeded},
            "every random number from self.np_random",
            {"env": Seeded},
        ),
        case(
            "envs/goals.py:WithGoal._goal",
            WithGoal,
            {"env": Toy()},
            "set self.goal in reset",
            {"env": Aimed()},
        ),
    ],
)
def test_advice_on_environments(case) -> None:
    case.follow()
