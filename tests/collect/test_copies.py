"""Agents are values: copied, pickled, and sent to other processes."""

import copy
import pickle
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tandem
from tandem.errors import SettingError
from tandem.learning.collect.trained_agent import Agent
from tests.collect.own_networks import body
from tests.helpers import run_python

SMALL = {"steps": 64, "rollout": 32, "envs": 2, "epochs": 1, "batch_size": 64}
SMALL |= {"eval_episodes": 0, "final_episodes": 1, "eval_max_steps": 20}
OBS = np.random.default_rng(0).standard_normal((20, 4)).astype(np.float32)


def agent(network: Any = None, env: str = "CartPole-v1", **more: Any) -> Any:
    return tandem.train("ppo", env, network=network, framework="torch", **SMALL, **more).agent


def test_an_agent_with_a_memory_and_boxes_for_actions_travels_too() -> None:
    first = agent(env="Pendulum-v1", recurrent=8, hidden=(8,))
    other, states = pickle.loads(pickle.dumps(first)), [None, None]
    for row in OBS[:, :3]:
        for i, each in enumerate((first, other)):
            action, states[i] = each.predict(row, states[i], deterministic=True)
        assert action.dtype == np.float32
    np.testing.assert_array_equal(states[0], states[1])


@pytest.mark.parametrize("network", [None, body], ids=["known", "own"])
def test_copies_and_pickles_act_alike(network, tmp_path) -> None:
    given = dict(framework="torch", network=network, out=tmp_path / "run", plots=False)
    result = tandem.train("ppo", "CartPole-v1", **given, **SMALL)
    first, loaded = result.agent, tandem.load(tmp_path / "run", network=network)
    there = pickle.loads(pickle.dumps((result, loaded)))
    assert there[0].summary == result.summary
    assert there[0].agent.act(OBS).tolist() == there[1].act(OBS).tolist()
    for other in (copy.deepcopy(first), copy.copy(first), there[0].agent):
        assert other.act(OBS).tolist() == first.act(OBS).tolist()
        _ = first.seed(3), other.seed(3)
        drawn = [a.act(OBS, deterministic=False).tolist() for a in (first, other)]
        assert drawn[0] == drawn[1]
        assert tandem.evaluate(other, "CartPole-v1", 2) == tandem.evaluate(first, "CartPole-v1", 2)


def test_a_class_that_cannot_be_imported_travels_too() -> None:
    import torch

    class Local(torch.nn.Module):
        def __init__(self, function) -> None:
            super().__init__()
            self.dense, self.function = torch.nn.Linear(4, 8), function

        def forward(self, x):
            return self.function(self.dense(x))

    first = agent(lambda space: Local(lambda x: torch.sin(x)))
    for other in (copy.deepcopy(first), pickle.loads(pickle.dumps(first))):
        assert other.act(OBS).tolist() == first.act(OBS).tolist()
    locked = first.networks["actor"].network.module = Local(torch.sin)
    locked.lock = threading.Lock()
    with pytest.raises(SettingError, match=r"pickle(.|\n)*; expected (.|\n)*Fix: .*tandem.load"):
        pickle.dumps(first)


OTHERS = [pytest.param(e, marks=pytest.mark.thorough) for e in ("tensorflow", "keras-torch")]


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["jax", *OTHERS])
def test_a_keras_agent_acts_in_another_process(engine) -> None:
    (found,) = run_python(
        f"""
        import copy, json, multiprocessing, pickle
        import keras
        import numpy as np
        import tandem
        from tests.collect import own_networks
        from tests.collect.test_copies import OBS, SMALL

        class Plain(keras.Model):
            def __init__(self):
                super().__init__()
                self.inner = keras.layers.Dense(8, "tanh")

            def call(self, x):
                return self.inner(x)

        if __name__ == "__main__":
            class Local(keras.Model):
                def __init__(self, inner, function):
                    super().__init__()
                    self.parts, self.function = [inner, keras.layers.Dropout(0.5)], function

                def call(self, x, training=False):
                    for part in self.parts:
                        x = part(x, training=training)
                    return self.function(x)

            networks = {{
                "body": own_networks.body,
                "lambda": own_networks.with_lambda,
                "plain": lambda space: Plain(),
                "local": lambda space: Local(Plain(), lambda x: x * 2.0),
            }}
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                for name, network in networks.items():
                    first = tandem.train("ppo", "CartPole-v1", framework={engine!r},
                                         network=network, **SMALL).agent
                    here = first.act(OBS).tolist()
                    there = pool.map(first.act, [OBS])[0].tolist()
                    for other in (copy.deepcopy(first), pickle.loads(pickle.dumps(first))):
                        assert other.act(OBS).tolist() == here == there, name
            print(json.dumps("all"))
        """,
        engine=engine,
    )
    assert found == "all"


@pytest.mark.slow
def test_a_keras_network_on_torch_is_the_framework_keras_torch() -> None:
    """With framework="torch" it was trained to the end, and could not be copied then."""
    code = """
        import json, pickle
        import tandem
        from tests.collect.own_networks import body
        from tests.collect.test_copies import OBS, SMALL

        made = tandem.train("ppo", "CartPole-v1", framework="torch", network=body, **SMALL)
        other = pickle.loads(pickle.dumps(made.agent))
        alike = other.act(OBS).tolist() == made.agent.act(OBS).tolist()
        print(json.dumps([made.summary["framework"], made.notes, alike]))
    """
    ((framework, notes, alike),) = run_python(code, engine="keras-torch")
    assert framework == "keras-torch" and alike
    assert "the network is a Keras model: framework='torch' becomes 'keras-torch'." in notes


@pytest.mark.parametrize("shape", [(3,), (2, 3)], ids=["one", "team"])
def test_memories_begin_anew_where_episodes_start(shape: tuple[int, ...]) -> None:
    agent = Agent.__new__(Agent)
    agent.actor = SimpleNamespace(initial_state=lambda n: np.zeros((n, *shape)))  # type: ignore[assignment]
    for n in (2, 3):  # as many as a team has agents, and more
        state = agent._state(n, np.ones((n, *shape)), np.arange(n) == 0)
        assert not state[0].any() and state[1:].all()
