import math
from collections import deque
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tandem.agents.reach import reach
from tests.helpers import run_python

torch = pytest.importorskip("torch")
nn = torch.nn


class Helper:
    def __init__(self, **what: Any) -> None:
        self.__dict__.update(what)


class Env:
    """A user's environment; the network in it is none of the agent's."""

    def __init__(self, network: Any) -> None:
        self.network = network

    def step(self, action: int) -> None:
        raise NotImplementedError


def test_everything_is_found_once_where_it_was_first() -> None:
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
        others=[3, None, math.sqrt, nn.Linear],
        # libraries' objects are left alone
        pool=deque([nn.Linear(2, 2)]),
        rng=np.random.default_rng(0),
        # parameters in lists are those of their module
        param=list(q.parameters()),
        loose=nn.Parameter(q.weight.detach().clone()),
    )
    agent.me = agent  # a circle
    agent.helper.back = agent
    found = reach(agent)
    names = ["q", "target/0", "target/1/deep/0", "helper/critic", "space/actor"]
    assert list(found.modules) == names and found.modules["q"] is q
    assert found.variables == {"tau": agent.tau, "loose": agent.loose}
    assert list(found.optimizers) == ["optimizer"]


@pytest.mark.slow
def test_keras_layers_models_and_variables() -> None:
    found = run_python(
        """
        import json
        import keras
        from tandem.agents.reach import reach

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
