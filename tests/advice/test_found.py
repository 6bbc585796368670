"""The advice of what looks for settings (`tandem find`, `search`), of numbers that adapt by
themselves, of the calls in processes that both are made by, and of losses."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
import torch

import tandem
from tandem import plots
from tandem.tuning import search
from tests.advice.net import case, follows
from tests.tuning.test_search import trial

RATES = {"start": 1e-4, "end": 1e-2, "points": 2, "setting": "learning_rate"}
FEW = {"steps": 1, "framework": "torch", "processes": 1}


def rates(**given: Any) -> None:
    search.rates("dqn", "CartPole-v1", **{**RATES, **given})


def found(returns: list[float], fault: str = "") -> None:
    search._found([trial(0.1, returns, fault=fault)], None, "title")


def series(**given: Any) -> None:
    plots.series([1.0, 2.0], [1.0, 2.0], "x", "y", **given)


class Begun(Exception):
    """A search got as far as its trials."""


def begun(what: str) -> None:
    raise Begun(what)


def search_with(function: Any, *words: Any, **given: Any) -> None:
    with pytest.raises(Begun):
        function(*words, "CartPole-v1", begun=begun, **FEW, **given)


@pytest.mark.parametrize(
    "case",
    [
        case("plots.py:series", series, {"x_scale": "lg"}, "'log'", {"x_scale": "log"}),
        case(
            "tuning/search.py:_found",
            found,
            {"returns": [1.0], "fault": "the loss was not finite"},
            "lower the learning rates",
            {"fault": ""},
        ),
        case(
            "tuning/search.py:_found",
            found,
            {"returns": []},
            "leave --eval-episodes out",
            {"returns": [1.0]},
        ),
    ],
)
def test_advice_on_what_is_looked_for(case) -> None:
    case.follow()


def test_searches_of_nothing_and_of_what_is_given() -> None:
    with follows("tuning/search.py:_searched") as advice:
        search_with(search.find_best, [])
    search_with(
        search.find_best, json.loads(advice.fix.removeprefix("give ").partition(", say")[0])
    )
    with follows("tuning/search.py:_searched 2") as advice:
        search_with(search.find_lr, "dqn", learning_rate=0.1)
    assert advice.fix == "leave learning_rate out."
    search_with(search.find_lr, "dqn")
    with follows("tuning/search.py:find_optimizer 2") as advice:
        search_with(search.find_optimizer, "dqn", optimizers=["adm"])
    search_with(search.find_optimizer, "dqn", optimizers=[advice.quoted()])


def test_a_search_with_an_optimizer_that_is_an_object() -> None:
    mine = torch.optim.SGD([torch.zeros(1)], lr=0.1)
    calls = (
        partial(search.find_lr, "dqn"),
        partial(search.find_best, ["dqn"]),
        partial(tandem.sweep, "dqn"),
    )
    for call in calls:
        with follows("tuning/search.py:refuse_own_optimizer") as advice:
            call("CartPole-v1", optimizer=mine)
        assert advice.fix.startswith("leave optimizer out")
    with follows("tuning/search.py:refuse_own_optimizer"):
        search.find_optimizer("dqn", "CartPole-v1", optimizers=[mine])
