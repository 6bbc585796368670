import copy
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from tandem import trainer
from tandem.envs.factory import resume_fault
from tandem.envs.plain import Plain, as_gymnasium
from tandem.errors import EnvironmentFault, SpaceError


class Old:
    """A walk on a line as of gym before 0.26: seeded by a method, four values a step."""

    goal = 3.0

    def __init__(self) -> None:
        self.rng, self.closed = np.random.default_rng(), False

    def seed(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def reset(self) -> Any:
        self.at, self.steps = float(self.rng.integers(-1, 2)), 0
        return [self.at, 0.0]

    def step(self, action: int) -> Any:
        self.at += 2 * int(action) - 1
        self.steps += 1
        limit = self.steps == 15
        done = abs(self.at) >= self.goal or limit
        info = {"TimeLimit.truncated": limit} if limit else {}
        return [self.at, self.steps], np.array([self.at]), done, info

    def close(self) -> None:
        self.closed = True


def named(kind: str, **attributes: Any) -> Any:
    """A space of another library, by the name of its class."""
    return type(kind, (), attributes)()


BOUNDS = {"low": [-9.0, 0.0], "high": [9.0, 20.0], "shape": (2,), "dtype": np.dtype("float32")}
Old.observation_space = named("Box", **BOUNDS)
Old.action_space = named("Discrete", n=2)


def test_an_old_environment_is_one_of_gymnasiums_and_trained_in_and_resumed_exactly() -> None:
    inner = Old()
    env = Plain(inner)
    assert env.action_space == spaces.Discrete(2) and env.observation_space.dtype == np.float32
    first = [env.reset(seed=s)[0].tolist() for s in (1, 1, 2, 3, 4)]
    assert first[0] == first[1] and len(set(map(tuple, first))) > 1
    env.reset(seed=0)
    inner.at = 2.0
    obs, *rest = env.step(1)
    assert obs.dtype == np.float32 and obs.tolist() == [3.0, 1.0]
    assert rest == [3.0, True, False, {}] and type(rest[0]) is float
    env.reset(seed=0)
    inner.at, inner.steps = 0.0, 14
    assert env.step(1)[2:4] == (False, True), "a limit is no termination"
    assert env.goal == 3.0 and not hasattr(env, "nothing")
    env.close()
    assert inner.closed
    assert resume_fault(lambda: Plain(Old()), 30) is None
    small = {"rollout": 16, "envs": 2, "batch_size": 16, "epochs": 1, "hidden": (8,)}
    made = trainer.train("ppo", lambda: Plain(Old()), framework="torch", steps=64, **small)
    assert made.agent.act(np.zeros(2)) in (0, 1)


class Bare:
    """Spaces nobody wrote down, and a seed that reset takes; observations are pictures."""

    def reset(self, seed: int | None = None) -> Any:
        self.told = seed
        return np.zeros((4, 4, 1), np.uint8), {"seed": seed}

    def step(self, action: Any) -> Any:
        return np.ones((4, 4, 1), np.uint8), 1, False, True, {}


def test_spaces_are_found_or_asked_for() -> None:
    with pytest.raises(SpaceError, match=r"Bare has no action_space(.|\n)*Discrete\(n\)"):
        Plain(Bare())
    env = Plain(Bare(), action_space=spaces.Discrete(3))
    assert env.observation_space == spaces.Box(0, 255, (4, 4, 1), np.uint8)
    assert env.reset(seed=5)[1] == {"seed": 5} and env.inner.told == 5
    assert env.step(0)[1:4] == (1.0, False, True)
    env.close()  # it has no such method
    other: Any = Bare()
    other.action_space = named("MultiBinary", n=3)
    assert Plain(other).action_space == spaces.MultiBinary(3)
    other.action_space = named("Dict", spaces={"a": named("Discrete", n=2, start=1)})
    assert Plain(other).action_space == spaces.Dict({"a": spaces.Discrete(2, start=1)})


class Team:  # two agents: rewards and ends for each
    action_space = named("MultiDiscrete", nvec=[2, 2])
    observation_space = None

    def reset(self) -> Any:
        return np.zeros((2, 3))

    def step(self, action: Any) -> Any:
        return np.ones((2, 3)), [1.0, 3.0], [True, False], None


def test_several_agents_are_reduced_to_one_and_what_is_no_environment_is_said() -> None:
    env = Plain(Team(), reduce=lambda r, d: (np.mean(r), all(d)))
    assert env.observation_space.shape == (2, 3) and env.observation_space.dtype == np.float32
    assert env.step([0, 1])[1:4] == (2.0, False, False)
    with pytest.raises(EnvironmentFault, match=r"of shape \(2,\)(.|\n)*reward_done_func_ma"):
        Plain(Team()).step([0, 1])
    with pytest.raises(EnvironmentFault, match="int has no method reset"):
        Plain(3)
    env = Bare()
    env.step = lambda action: (0, 1)  # type: ignore[assignment]
    with pytest.raises(EnvironmentFault, match="step of Bare returned a tuple of 2"):
        Plain(env, action_space=spaces.Discrete(2)).step(0)
    with pytest.raises(SpaceError, match="Graph"):
        Plain(Bare(), action_space=named("Graph"))


def test_copies_and_adapted_environments() -> None:
    # a copy is of the object, and not of the agent that reduces
    class Agent:
        def __deepcopy__(self, memo: Any) -> Any:
            raise TypeError("not to be copied")

        def reduce(self, r: Any, d: Any) -> Any:
            return r, d

    env = Plain(Old(), action_space=spaces.Discrete(2), reduce=Agent().reduce)
    env.reset(seed=1)
    other = copy.deepcopy(env)
    at = other.at
    env.step(1)
    assert other.at == at != env.at and other.inner is not env.inner
    assert other.action_space == env.action_space and other.step(1)[0][0] == env.at
    # Gymnasium's own stay as they are
    env = gymnasium.make("CartPole-v1")
    assert as_gymnasium(env) is env and isinstance(as_gymnasium(Old()), Plain)
    assert isinstance(as_gymnasium(env, reduce=max), Plain)
