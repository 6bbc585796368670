"""The advice of what looks for settings (`tandem find`, `search`), of numbers that adapt by
themselves, of the calls in processes that both are made by, and of losses."""

from __future__ import annotations

import json
import math
import shlex
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import tandem
from tandem import plots
from tandem.cli import find
from tandem.math.adaptive import Parameters
from tandem.parallel.tasks import Tasks
from tandem.tuning import search
from tests.advice.net import case, follows
from tests.advice.test_upper_agents import SQUARE, SQUEEZED, learn
from tests.parallel.test_tasks import fail, named, square, unlucky
from tests.tuning.test_search import trial

RATES = {"start": 1e-4, "end": 1e-2, "points": 2, "setting": "learning_rate"}
FEW = {"steps": 1, "framework": "torch", "processes": 1}


def rates(**given: Any) -> None:
    search.rates("dqn", "CartPole-v1", **{**RATES, **given})


def found(returns: list[float], fault: str = "") -> None:
    search._found([trial(0.1, returns, fault=fault)], None, "title")


def series(**given: Any) -> None:
    plots.series([1.0, 2.0], [1.0, 2.0], "x", "y", **given)


def complete(kind: str, names: list[str], env: str | None) -> None:
    find._complete(kind, names, env)


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
        case(
            "math/adaptive.py:Parameters.of",
            Parameters.of,
            {"name": "lr", "given": 0.1},
            "give lr_params={'rate': 0.1}",
            {"given": {"rate": 0.1}},
        ),
        case(
            "math/adaptive.py:Parameters.of 3",
            Parameters.of,
            {"name": "lr", "given": {"rate": "fast"}},
            "give 'rate' a number",
            {"given": {"rate": 0.1}},
        ),
        case(
            "math/adaptive.py:Parameters.of 4",
            Parameters.of,
            {"name": "lr", "given": {"max": 0.1}},
            "give lr_params={'rate': 0.01}",
            {"given": {"rate": 0.01}},
        ),
        case(
            "math/adaptive.py:Parameters.bounds",
            Parameters.of,
            {"name": "lr", "given": {"rate": 0.1, "min": 1.0, "max": 0.1}},
            "give a min that is not above max",
            {"given": {"rate": 0.1, "min": 0.1, "max": 1.0}},
        ),
        case("plots.py:series", series, {"x_scale": "lg"}, "'log'", {"x_scale": "log"}),
        case(
            "tuning/search.py:rates",
            rates,
            {"setting": "learning_rat"},
            "'learning_rate'",
            {"setting": "learning_rate"},
        ),
        case(
            "tuning/search.py:rates 2",
            rates,
            {"start": 1e-1, "end": 1e-5},
            "try 1e-5 and 1e-1",
            {"start": 1e-5, "end": 1e-1},
        ),
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
        case(
            "cli/find.py:_complete",
            complete,
            {"kind": "lr", "names": ["CartPole-v1"], "env": "ppo"},
            "tandem find lr ppo CartPole-v1",
            {"names": ["ppo"], "env": "CartPole-v1"},
        ),
        case(
            "cli/find.py:_varied",
            find._varied,
            {"vary": ["gamma"]},
            "--vary gamma=0.9,0.99",
            {"vary": ["gamma=0.9,0.99"]},
        ),
    ],
)
def test_advice_on_what_is_looked_for(case) -> None:
    case.follow()


def test_a_mistyped_key_of_an_adaptive_number() -> None:
    with follows("math/adaptive.py:Parameters.of 2") as advice:
        Parameters.of("lr", {"rat": 0.1})
    assert Parameters.of("lr", {advice.quoted(): 0.1}).rate == 0.1


@pytest.mark.parametrize(
    "key, names, env",
    [
        ("cli/find.py:_complete 2", [], None),
        ("cli/find.py:_complete 2", ["ppo"], None),
        ("cli/find.py:_complete 3", ["ppo", "a2c"], "CartPole-v1"),
    ],
)
def test_a_command_that_says_too_little_or_too_much(key, names, env) -> None:
    with follows(key) as advice:
        complete("lr", names, env)
    command = advice.fix.removesuffix(" compares them.")
    _, _, kind, *words = shlex.split(command)
    args = find._arguments(kind, words)
    assert args is not None and kind in find.KINDS


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


def test_a_thing_that_is_not_found() -> None:
    with follows("cli/find.py:run") as advice:
        find.run(["lrr", "ppo", "CartPole-v1"])
    assert advice.quoted() in find.KINDS


@pytest.mark.slow
@pytest.mark.parametrize("fix", ["mend what raised", "run fewer at a time"])
def test_calls_in_processes(fix, tmp_path: Path) -> None:
    raised = fix.startswith("mend")
    call = (fail, ("mine",)) if raised else (unlucky, (1, tmp_path, 2))
    with follows("parallel/tasks.py:Tasks._note") as advice:
        Tasks(1, again=1).run(named(*call))
    assert fix in advice.fix
    if raised:
        assert math.isclose(Tasks(1).run(named(square, (3,)))[0][0], 9)
    else:  # what killed it is over
        assert Tasks(1, again=1).run(named(*call)) == [1]


def test_a_loss_of_each_sample_with_each_other() -> None:
    with follows("backends/broadcast_check.py:check_losses") as advice:
        learn(SQUARE)
    assert "squeeze the axis" in advice.fix
    learn(SQUEEZED)
