"""The exact values that games of known best play are held to."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import tabular
from tandem.spaces import Leaf

STATES = Leaf("discrete", (), "int64", (48,))


def agent_of(policy):
    return SimpleNamespace(act=lambda s: policy[int(s)], observation=STATES)


def test_the_best_path_along_the_cliff_and_what_counts_as_reached() -> None:
    policy = np.full(48, 1)  # right
    policy[36], policy[35] = 0, 2  # up at the start, down at the end
    value, best = tabular.exact("CliffWalking-v1", agent_of(policy), 1.0)
    assert value == pytest.approx(-13, abs=1e-5) and best == pytest.approx(-13)
    assert tabular.exact("CliffWalking-v1", agent_of(np.zeros(48)), 1.0)[0] < -1e6
    discounted, of = tabular.exact("CliffWalking-v1", agent_of(policy), 0.9)
    assert discounted == pytest.approx(of) == pytest.approx(-(1 - 0.9**13) / 0.1)
    assert tabular._reached("CliffWalking-v1", {"value": -13.0, "best": -13.0})
    assert not tabular._reached("CliffWalking-v1", {"value": -14.0, "best": -13.0})
    assert tabular._reached("Taxi-v4", {"value": 7.85, "best": 8.0})
    assert not tabular._reached("Taxi-v4", {"value": 7.8, "best": 8.0})
    assert not tabular._reached("Blackjack-v1", {"value": -0.07, "best": None})
