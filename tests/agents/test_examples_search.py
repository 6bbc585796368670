"""AlphaZero on CartPole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.helpers import run_python


def small() -> Any:
    torch = pytest.importorskip("torch")
    from tandem.examples.pytorch.AlphaZeroCartPole import AlphaZero

    torch.manual_seed(0)
    return AlphaZero(4, 16, 2, num_simulations=8, c_puct=0.03)


def test_a_search_sees_the_fall_that_is_near() -> None:
    agent = small()
    agent.num_simulations = 64
    leaning = np.array([0.0, 0.0, 0.12, 0.5])  # falls to the right unless it is pushed there
    assert np.argmax(agent.search(leaning)) == 1 and np.argmax(agent.search(-leaning)) == 0


def test_it_trains_on_what_it_found() -> None:
    torch = pytest.importorskip("torch")
    agent = small()
    agent.set(pool_size=200, batch=8, num_steps=10, IRL=True)
    before = agent.net[0].weight.detach().clone()
    agent.train(torch.optim.Adam(agent.param, 1e-3), 1, p=0)
    assert agent.total_episode == 1 and not torch.equal(before, agent.net[0].weight)


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_it_balances() -> None:
    pytest.importorskip("torch")
    from tandem.examples.pytorch.AlphaZeroCartPole import main

    assert main().average_reward() >= 475


@pytest.mark.learns
@pytest.mark.timeout(2500)
@pytest.mark.parametrize("engine", ["jax", "tensorflow"])
def test_keras_balances_it_too(engine: Any) -> None:
    pytest.importorskip(engine)
    code = """
    import contextlib, json, sys
    from tandem.examples.keras.AlphaZeroCartPole import main
    with contextlib.redirect_stdout(sys.stderr):
        reached = main(0).average_reward()
    print(json.dumps(reached))
    """
    (reached,) = run_python(code, engine=engine, timeout=2400)
    assert reached >= 475


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["jax", pytest.param("tensorflow", marks=pytest.mark.thorough)])
def test_keras(engine: Any) -> None:
    pytest.importorskip(engine)
    code = """
    import json
    import keras
    from tandem.examples.keras.AlphaZeroCartPole import AlphaZero
    agent = AlphaZero(4, 16, 2, num_simulations=4, c_puct=0.03)
    agent.set(pool_size=200, batch=8, num_steps=10, IRL=True)
    agent.train(None, keras.optimizers.Adam(1e-3), 1, p=0)
    print(json.dumps([agent.total_episode, agent.loss]))
    """
    ((episodes, loss),) = run_python(code, engine=engine, timeout=300)
    assert episodes == 1 and 0 < loss < 10
