"""The advice of Keras's backends, in processes of their own."""

from __future__ import annotations

import re

import pytest

from tests.helpers import COMPILED_LIGHTLY, run_python

CASES = "from tests.advice import keras_cases; keras_cases.main({device})"
THERE = "import json; from tandem.backends import choose; import keras; print(json.dumps(choose()))"
FOUR = """
import tensorflow as tf
{line}
tf.zeros(1)
from tandem import trainer
trainer.session("dqn", "CartPole-v1", framework="tensorflow", device="cpu", devices=4, plots=False)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "engine, other",
    [("jax", "tensorflow"), pytest.param("tensorflow", "jax", marks=[pytest.mark.thorough])],
)
def test_advice_on_keras(engine, other) -> None:
    """On TensorFlow that of devices alone, which is all that differs."""
    env = {"JAX_NUM_CPU_DEVICES": "2"} | (COMPILED_LIGHTLY if engine == "jax" else {})
    code = CASES.format(device=engine == "tensorflow")
    ((fix, devices),) = run_python(code, engine=engine, env=env)
    (told,) = re.findall(r"KERAS_BACKEND=(\w+) before anything imports keras", fix)
    assert run_python(THERE, env={"KERAS_BACKEND": told}) == [other]
    if engine == "jax":
        assert "JAX_NUM_CPU_DEVICES=4 before anything imports jax" in devices
    else:
        (line,) = re.findall(r"call (tf\.config\..*\* 4\)) where your program begins", devices)
        assert run_python(FOUR.format(line=line), engine=engine) == []
