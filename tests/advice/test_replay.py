"""The advice of `replay`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tandem.replay.buffer import Ring
from tandem.replay.scored import ScoredSampler
from tandem.spaces import Leaf
from tandem.types import Cuts, Trajectory
from tests.advice.net import case

VECTOR, ACTION, RNG = Leaf("box", (2,), "float32"), Leaf("discrete", (), "int64", (4,)), np.random


def ring(capacity: int = 8, envs: int = 1, obs: Any = VECTOR, path: Any = None) -> Ring:
    return Ring(capacity, envs, obs, ACTION, path=path)


def steps(n: int = 4, *, obs: Any = None, last: Any = None, cuts: Any = None) -> Trajectory:
    """`n` steps of an environment, whose episode was cut after the last of them."""
    obs = np.arange(2 * n + 2, dtype=np.float32).reshape(n + 1, 1, 2) if obs is None else obs
    ends = np.eye(n, dtype=bool)[-1:].T if last is None else last
    row, at = np.ones((n, 1), np.float32), np.array([n - 1])
    cuts = Cuts(at, 0 * at, obs[-1]) if cuts is None else cuts
    return Trajectory(obs[:-1], np.zeros((n, 1), np.int64), row, row, ends, row > 0, cuts, obs[-1])


def filled(n: int = 4, into: Ring | None = None) -> Ring:
    into = ring() if into is None else into
    into.add(steps(n))
    return into


def rows(into: Ring, ids: Any) -> None:
    into.transitions(np.atleast_1d(ids))


def add(into: Any, last: Any = None, dtype: Any = np.float32) -> None:
    step = steps(last=last)
    into.add(step._replace(reward=step.reward.astype(dtype)))


@pytest.mark.parametrize(
    "case",
    [
        case(
            "replay/scored.py:ScoredSampler.__init__",
            lambda lambda_: ScoredSampler(filled(), {"TD": 7.0}, share=lambda_),
            {"lambda_": 2},
        ),
    ],
)
def test_advice_of_replay(case) -> None:
    case.follow()
