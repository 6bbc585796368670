"""The pool examples: their programs as documented, with seven processes, and that they learn."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

from tests.helpers import run_python

torch = pytest.importorskip("torch")

from tandem.agents import train_call  # noqa: E402
from tandem.exploration import EpsGreedyQPolicy, GaussianWhiteNoiseProcess, SoftmaxPolicy  # noqa: E402

VALUES = ("DQN", "DoubleDQN", "DuelingDQN")


def example(name: str) -> Any:
    return importlib.import_module(f"tandem.examples.pytorch.pool_network.{name}")


def adams(model: Any) -> list[Any]:
    return [torch.optim.Adam(p) for p in model.param]


@pytest.mark.slow
@pytest.mark.parametrize("name", VALUES)
def test_value_methods_as_documented(name: str) -> None:
    model = getattr(example(name), name)(4, 128, 2, 7)
    model.set(policy=EpsGreedyQPolicy(0.01), pool_size=10000, batch=64, update_batches=17)
    model.train(torch.optim.Adam(model.param), 20, pool_network=True, processes=7, p=0)
    assert (
        len(model._assembly.environments.group.workers) == 6
        and model.total_episode >= 20
        and model.loss > 0
    )


@pytest.mark.slow
def test_hindsight_as_documented() -> None:
    train_call._said.clear()
    model = example("DDPG_HER").DDPG(128, 0.1, 0.98, 0.005, 7)
    model.set(
        noise=GaussianWhiteNoiseProcess(), pool_size=10000, batch=256, trial_count=10, HER=True
    )
    with pytest.warns(UserWarning, match="processes_her=4"):
        model.train(adams(model), 10, pool_network=True, processes=7, processes_her=4, p=0)
    assert model.total_episode >= 10 and np.isfinite(model.loss)


@pytest.mark.slow
def test_several_agents() -> None:
    model = example("MADDPG").DDPG(128, 0.1, 0.98, 0.005, 7)
    model.set(policy=SoftmaxPolicy(), pool_size=3000, batch=32, trial_count=10, MARL=True)
    model.train(adams(model), 10, pool_network=True, processes=7, p=0)
    assert model.total_episode >= 10 and np.isfinite(model.loss)


@pytest.mark.slow
def test_prioritized_ppo() -> None:
    model = example("PPO_pr").PPO(4, 128, 2, 0.7, 0.7, 7)
    model.set(
        policy=SoftmaxPolicy(), pool_size=10000, batch=64, update_steps=700, PPO=True, PR=True
    )
    model.train(adams(model), 60, pool_network=True, processes=7, p=0)
    assert model._assembly.learner.updates > 0 and len(model._assembly.learner.ring) == len(
        model.prioritized_replay.TD
    )


KERAS = """
import contextlib, io, json, sys
import keras
from tandem.examples.keras.pool_network import DQN, PPO_pr
from tandem.exploration import EpsGreedyQPolicy, SoftmaxPolicy

if len(sys.argv) > 1:
    with contextlib.redirect_stdout(io.StringIO()):
        found = [m.main(0, processes=2).average_reward() for m in (DQN, PPO_pr)]
    print(json.dumps(found))
else:
    model = DQN.DQN(4, 128, 2, 7)
    model.set(policy=EpsGreedyQPolicy(0.01), pool_size=10000, update_batches=17)
    model.train(
        keras.metrics.Mean(name="train_loss"),
        keras.optimizers.Adam(),
        20,
        pool_network=True,
        processes=7,
        p=0,
    )
    ppo = PPO_pr.PPO(4, 128, 2, 0.7, 0.7, 3)
    ppo.set(policy=SoftmaxPolicy(), pool_size=10000, batch=64, update_steps=300, PPO=True, PR=True)
    ppo.train(
        keras.metrics.Mean(),
        [keras.optimizers.Adam(1e-4), keras.optimizers.Adam(5e-3)],
        30,
        processes=3,
        p=0,
    )
    print(json.dumps([model.total_episode >= 20, ppo._assembly.learner.updates > 0]))
"""


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("engine", ["jax", "tensorflow"])
def test_keras_programs(engine: Any) -> None:
    pytest.importorskip("keras")
    assert run_python(KERAS, engine=engine, timeout=300) == [[True, True]]


# To the end


@pytest.mark.learns
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", [*VALUES, "PPO_pr"])
def test_cart_poles_are_balanced(name: str) -> None:
    assert example(name).main(0, processes=2).average_reward() >= 475


@pytest.mark.learns
@pytest.mark.timeout(1200)
def test_keras_balances_them_too() -> None:
    pytest.importorskip("jax")
    assert min(run_python(KERAS, "learn", engine="jax", timeout=1100)[0]) >= 475


@pytest.mark.learns
@pytest.mark.timeout(1200)
def test_control_is_learned() -> None:
    pendulum = example("DDPG").main(0, processes=2)
    assert np.mean([pendulum.run_agent(200, i)[1] for i in range(10)]) >= -200
    assert np.mean(example("DDPG_HER").main(0, processes=2).reward_list[-10:]) >= -5
    # each alone: about 10
    assert np.mean(example("MADDPG").main(0, processes=2).reward_list[-10:]) >= 15
