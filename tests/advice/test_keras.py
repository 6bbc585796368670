"""The advice of Keras's backends, in processes of their own."""

from __future__ import annotations

import re

import pytest

from tests.helpers import COMPILED_LIGHTLY, run_python

CASES = "from tests.advice import keras_cases; keras_cases.main({device})"
THERE = "import json; from tandem.backends import choose; import keras; print(json.dumps(choose()))"


@pytest.mark.slow
@pytest.mark.parametrize(
    "engine, other",
    [("jax", "tensorflow"), pytest.param("tensorflow", "jax", marks=[pytest.mark.thorough])],
)
def test_advice_on_keras(engine, other) -> None:
    """On TensorFlow the device alone, which is all that differs."""
    light = COMPILED_LIGHTLY if engine == "jax" else {}
    code = CASES.format(device=engine == "tensorflow")
    (fix,) = run_python(code, engine=engine, env=light)
    (told,) = re.findall(r"KERAS_BACKEND=(\w+) before anything imports keras", fix)
    assert run_python(THERE, env={"KERAS_BACKEND": told}) == [other]
