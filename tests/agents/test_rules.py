"""Every rule moves what acts or steps, on every engine."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import COMPILED_LIGHTLY, run_python

torch = pytest.importorskip("torch")

from tandem.agents.rl import RL_pytorch  # noqa: E402
from tests.agents import rule_cases  # noqa: E402

SNIPPETS = Path(__file__).parent / "snippets"


@pytest.mark.slow
def test_rules_on_torch() -> None:
    found = rule_cases.rules(
        RL_pytorch,
        lambda w: torch.optim.AdamW(w, 0.01, (0.9, 0.99), 1e-7, 0.1),
        lambda w: torch.optim.SGD(w, 0.01),
    )
    assert all(x is True for x in found.values()), {n: x for n, x in found.items() if x is not True}


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["jax", pytest.param("tensorflow", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("snippet", ["keras_rules.py", "keras_adaptive.py"])
def test_on_keras(engine: Any, snippet: str) -> None:
    if importlib.util.find_spec(engine) is None:
        pytest.skip(f"{engine} is not installed")
    light = COMPILED_LIGHTLY if engine == "jax" else {}
    (found,) = run_python(SNIPPETS / snippet, engine=engine, timeout=600, env=light)
    assert all(x is True for x in found.values()), {n: x for n, x in found.items() if x is not True}
