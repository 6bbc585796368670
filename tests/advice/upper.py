"""What the cases of the upper rooms share: runs that are made, or made and run, and toy
environments of any action space."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from tandem import trainer
from tandem.errors import TandemError
from tandem.testing.environments import Game
from tandem.testing.team_games import TeamGame

QUIET = {"plots": False, "tensorboard": False, "eval_episodes": 0, "framework": "torch"}
SHORT: dict[str, Any] = {"steps": 32, "hidden": (8,), "final_episodes": 1, **QUIET}


def box(low: float = -1.0, high: float = 1.0, dtype: Any = np.float32) -> spaces.Box:
    return spaces.Box(low, high, (2,), dtype)


CHOICE = spaces.Discrete(3)
UNBOUNDED, FAR, WHOLE = box(-np.inf, np.inf), box(-3e38, 3e38), box(-3, 3, np.int32)
PARTS = spaces.Dict(turn=CHOICE, speed=box())


class Toy(Game):
    """Takes any action of a space, for nothing."""

    def __init__(self, action: Any = CHOICE) -> None:
        self.action_space, self.observation_space = action, spaces.Box(-1, 1, (3,), np.float32)

    def observe(self) -> Any:
        return np.zeros(3, np.float32)

    def play(self, action: Any) -> tuple[float, bool]:
        assert self.action_space.contains(action), action
        return 0.0, False


class ToyTeam(TeamGame):
    """Two agents who take any actions of a space, for nothing, ten times."""

    def __init__(self, action: Any = CHOICE) -> None:
        super().__init__(2, 2, 3)
        self._choices, self.t = action, 0

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        assert all(self._choices.contains(actions[a]) for a in self.agents), actions
        self.t += 1
        over = self.t % 10 == 0
        result = tuple(map(self._to_all, (self.state(), 0.0, over, False, {})))
        self.agents = [] if over else self.agents
        return result


def toy(action: Any = CHOICE, team: bool = False) -> Any:
    """Makes environments with that action space."""
    return lambda: (ToyTeam if team else Toy)(action)


def made(algorithm: str = "ppo", env: Any = "CartPole-v1", **given: Any) -> None:
    """A session, made and given up."""
    run = trainer.session(algorithm, env, **{**QUIET, **given})
    run.loop.collector.close()


def ran(algorithm: str = "ppo", env: Any = "CartPole-v1", **given: Any) -> trainer.Session:
    """A session that has come to its end."""
    run = trainer.session(algorithm, env, **{**SHORT, **given})
    assert list(run)
    return run


def proposed(fix: str) -> list[str]:
    """The algorithms that a fix names."""
    from tandem import algorithms

    return [name for name in re.findall(r"\w+", fix) if name in algorithms.NAMES]


def acts(algorithm: str, env: Any, taken: bool = False, **given: Any) -> None:
    """A session; where the advice is taken, one of each algorithm that the fix names instead."""
    if taken:
        with pytest.raises(TandemError) as caught:
            made(algorithm, env, **given)
        names = proposed(caught.value.fix)
        assert names and algorithm not in names, caught.value.fix
        for name in names:
            ran(name, env)
    else:
        made(algorithm, env, **given)
