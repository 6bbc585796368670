"""The advice of `math`, `exploration`, `planning` and `settings`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tandem import settings
from tandem.algorithms.ppo import PPOSettings
from tandem.math import (
    moments,
    returns,
)
from tandem.planning import mcts
from tests.advice.net import case

X, LINE, ROW = np.ones((4, 3), np.float32), np.ones((4, 1), np.float32), np.ones(3, np.float32)
FLAT = X.ravel()


def seen(mask: Any) -> dict[str, Any]:
    return {"action_mask": mask}


def rows(rows: Any) -> None:
    moments.Moments(3).add(rows)


def shares(root: mcts.BaseNode, temperature: Any = 1.0) -> None:
    assert mcts.visit_shares(root, temperature) == {"on": 1.0}


def apply(**values: Any) -> None:
    settings.check_ranges(settings.apply(PPOSettings(), values))


def path(out: Any) -> None:
    assert settings.as_path("out", out) == Path("runs/mine")


def number(n: Any) -> None:
    settings.whole_number("n", n, 3)


@pytest.mark.parametrize(
    "case",
    [
        case(
            "math/returns.py:n_step",
            returns.n_step,
            {"reward": X, "discount": FLAT, "last": X > 0, "n": 2},
            "give discount.reshape(4, 3)",
            {"discount": FLAT.reshape(4, 3)},
        ),
    ],
)
def test_advice_on_numbers(case) -> None:
    case.follow()
