"""Keras agents on TensorFlow and JAX; and every rule moves what acts or steps, on every engine."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch

from tandem.agents.rl import RL_pytorch
from tests.agents import rule_cases
from tests.helpers import COMPILED_LIGHTLY, run_python

SNIPPETS = Path(__file__).parent / "snippets"
KERAS_RULES = """
import json
import keras
from tandem import RL
from tests.agents import rule_cases

adamw = lambda w: keras.optimizers.AdamW(0.01, 0.1, 0.9, 0.99, 1e-7)
print(json.dumps(rule_cases.rules(RL, adamw, lambda w: keras.optimizers.SGD(0.01))))
"""


def check(found: Any, count: int) -> None:
    assert len(found) == count and all(x is True for x in found.values()), found


@pytest.mark.slow
def test_rules_on_torch() -> None:
    adamw = lambda w: torch.optim.AdamW(w, 0.01, (0.9, 0.99), 1e-7, 0.1)  # noqa: E731
    check(rule_cases.rules(RL_pytorch, adamw, lambda w: torch.optim.SGD(w, 0.01)), 19)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["jax", pytest.param("tensorflow", marks=pytest.mark.thorough)])
@pytest.mark.parametrize(
    ("code", "count"),
    [(SNIPPETS / "keras_agent.py", 24), (KERAS_RULES, 23), (SNIPPETS / "keras_adaptive.py", 11)],
)
def test_on_keras(engine: Any, code: Any, count: int) -> None:
    if importlib.util.find_spec(engine) is None:
        pytest.skip(f"{engine} is not installed")
    light = COMPILED_LIGHTLY if engine == "jax" else {}
    (found,) = run_python(code, engine=engine, timeout=600, env=light)
    check(found, count)
