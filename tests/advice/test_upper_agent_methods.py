"""The advice of the room agents, followed: rules that adapt, finders, and networks that are built
by a hook."""

from __future__ import annotations

from typing import Any

import pytest

from tandem import LRFinder, OptFinder
from tests.advice.net import case
from tests.tuning.test_finders import Aimer, sgd


def aimer(optimizer: Any = sgd) -> Any:
    agent = Aimer()
    agent.optimizer = optimizer and optimizer(agent)
    return agent


def lr(
    optimizer: Any = sgd, look: str = "", index: int = -1, find: bool = True, **args: Any
) -> Any:
    """Finds a learning rate, then looks at the points that are found: `look`."""
    finder = LRFinder(aimer(optimizer), index)
    if find:
        finder.find(**{"N": 20, "start_lr": 0.01, "end_lr": 0.5, "p": 0, **args})
    return getattr(finder, f"plot_{look}")() if look else finder.best_lr


def change(metrics: str) -> Any:
    finder = LRFinder(aimer())
    finder.find(N=20, start_lr=0.01, end_lr=0.5, p=0)
    return finder.get_derivatives(1, metrics)


def opt(rates: Any = (0.5, 0.1), look: str = "loss", **args: Any) -> Any:
    agent = aimer(None)
    finder = OptFinder(agent, [sgd(agent, rate) for rate in rates])
    finder.find(**{"episodes": 8, "p": 0, **args})
    return finder.get_derivatives(1, look)


METRICS = {"metrics": "los"}
WHOLE = {"metrics": "loss"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "each",
    [
        # finders
        case("tuning/lr_finder.py:LRFinder._curve", change, METRICS, "", WHOLE),
        case(
            "tuning/lr_finder.py:LRFinder._curve 2",
            lr,
            {"look": "reward_change", "metrics": "loss", "N": 40},
            "look at the loss",
            {"look": "loss_change"},
        ),
        case(
            "tuning/lr_finder.py:LRFinder._curve 2",
            lr,
            {"look": "reward_change", "metrics": "loss", "N": 40},
            "call find again",
            {"metrics": "reward"},
        ),
        case("tuning/opt_finder.py:OptFinder._curve", opt, {"look": "los"}, "", {"look": "loss"}),
        case("tuning/opt_finder.py:OptFinder.find", opt, METRICS, "", WHOLE),
    ],
)
def test_followed(each: Any) -> None:
    each.follow()
