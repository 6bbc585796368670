"""The advice of the room agents, followed: members that are missing, files, and the engine."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from tests.helpers import run_python  # noqa: E402

KERAS = """
import json
import gymnasium
import keras
import torch
import tandem
from tandem.exploration import GreedyQPolicy
from tests.advice.net import follows
from tests.agents.agents import Probe, trained


class Agent(tandem.RL):
    def __init__(self):
        self.q = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
        self.param, self.env = self.q.weights, gymnasium.make("CartPole-v1")

    def action(self, s):
        return self.q(s)

    def __call__(self, s, a, next_s, r, d):
        return ((r - self.q(s)[:, 0]) ** 2).mean()

    def update_param(self):
        pass

agent = Agent()
agent.set(policy=GreedyQPolicy(), pool_size=100, batch=4)
if keras.backend.backend() == "torch":
    with follows("agents/assembly.py:engine") as advice:
        agent.train(None, keras.optimizers.SGD(0.01), 1, p=0)
    assert "KERAS_BACKEND=jax" in advice.fix and "subclass RL_pytorch" in advice.fix
    print(trained(Probe(), 1).total_episode)
else:
    agent.train(None, keras.optimizers.SGD(0.01), 1, p=0)
    print(agent.total_episode)
"""


@pytest.mark.slow
def test_keras_on_torch() -> None:
    assert run_python(KERAS, engine="keras-torch") == run_python(KERAS, engine="jax") == [1]
