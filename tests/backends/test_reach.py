from __future__ import annotations

import math
from collections import deque
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tandem.backends.reach import reach
from tests.helpers import run_python


class Helper:
    def __init__(self, **what: Any) -> None:
        self.__dict__.update(what)


class Env:
    """A user's environment; the network in it is none of the agent's."""

    def __init__(self, network: Any) -> None:
        self.network = network

    def step(self, action: int) -> None:
        raise NotImplementedError


@pytest.fixture
def nn() -> Any:
    return pytest.importorskip("torch").nn


def test_everything_is_found_once_where_it_was_first(nn) -> None:
    import torch

    q = nn.Linear(2, 2)
    agent = Helper(
        q=q,
        target=[nn.Linear(2, 2), {"deep": (nn.Linear(1, 1),)}],
        tau=torch.tensor(0.5),
        same=q,
        helper=Helper(critic=nn.Linear(3, 1), name="x"),
        space=SimpleNamespace(actor=nn.Linear(3, 1)),
        optimizer=torch.optim.SGD(q.parameters(), 0.1),
        env=Env(nn.Linear(9, 9)),
        number=3,
        nothing=None,
        function=math.sqrt,
        kind=nn.Linear,
    )
    agent.me = agent  # a circle
    agent.helper.back = agent
    found = reach(agent)
    assert list(found.modules) == [
        "q",
        "target/0",
        "target/1/deep/0",
        "helper/critic",
        "space/actor",
    ]
    assert (
        found.modules["q"] is q
        and found.variables == {"tau": agent.tau}
        and list(found.optimizers) == ["optimizer"]
    )


def test_parameters_in_lists_are_those_of_their_module(nn) -> None:
    q = nn.Linear(2, 2)
    found = reach(
        Helper(q=q, param=list(q.parameters()), loose=nn.Parameter(q.weight.detach().clone()))
    )
    assert list(found.modules) == ["q"] and list(found.variables) == ["loose"]


def test_libraries_objects_are_left_alone(nn) -> None:
    hidden = nn.Linear(2, 2)
    assert reach(Helper(pool=deque([hidden]), rng=np.random.default_rng(0))) == ({}, {}, {})


@pytest.mark.slow
def test_keras_layers_models_and_variables() -> None:
    found = run_python(
        """
        import json
        import keras
        from tandem.backends.reach import reach

        class Agent:
            def __init__(self):
                self.model = keras.Sequential([keras.layers.Dense(2)])
                self.layers = {"head": keras.layers.Dense(1)}
                self.gamma = keras.Variable(0.9)
                self.optimizer = [keras.optimizers.Adam(), keras.optimizers.SGD()]

        print(json.dumps([list(part) for part in reach(Agent())]))
        """,
        engine="jax",
    )
    assert found == [[["model", "layers/head"], ["gamma"], ["optimizer/0", "optimizer/1"]]]
