"""Keras agents on TensorFlow and JAX, in processes of their own."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import COMPILED_LIGHTLY, run_python

SNIPPET = Path(__file__).parent / "snippets" / "keras_agent.py"


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["jax", pytest.param("tensorflow", marks=pytest.mark.thorough)])
def test_keras_agents(engine: Any) -> None:
    if importlib.util.find_spec(engine) is None:
        pytest.skip(f"{engine} is not installed")
    light = COMPILED_LIGHTLY if engine == "jax" else {}
    (found,) = run_python(SNIPPET, engine=engine, timeout=600, env=light)
    assert len(found) == 26 and all(x is True for x in found.values()), found


@pytest.mark.slow
def test_keras_on_torch_is_refused() -> None:
    code = """
    import json
    import keras
    from tandem import RL
    class Agent(RL):
        env, param = object(), [keras.Variable([1.0])]
        def action(self, s): ...
        def __call__(self, s, a, next_s, r, d): ...
        def update_param(self): ...
    agent = Agent()
    agent.set()
    try:
        agent.train(None, object(), 1)
    except Exception as error:
        print(json.dumps([type(error).__name__, str(error)]))
    """
    ((kind, message),) = run_python(code, engine="keras-torch")
    assert kind == "EngineError" and "RL_pytorch" in message
