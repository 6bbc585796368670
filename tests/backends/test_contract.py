"""The backends' contract (tests/backends/contract.py) on every engine, each in a process of its
own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers import COMPILED_LIGHTLY, run_python

SCRIPT = Path(__file__).parent / "contract.py"
ENGINES = ["torch"] + [pytest.param(e, marks=pytest.mark.slow) for e in ("jax", "tensorflow few")]
ENGINES += [
    pytest.param(e, marks=pytest.mark.thorough)
    for e in ("torch compile", "jax as for users", "tensorflow", "keras-torch")
]


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_a_backend_keeps_its_contract(engine) -> None:
    framework, *flags = engine.split()
    light = {} if "users" in flags else COMPILED_LIGHTLY
    checks = run_python(SCRIPT, framework, *flags, engine=framework, timeout=280, env=light)
    assert len(checks) >= 15
    broken = [f"{name}\n{fault}" for name, fault in checks if fault]
    assert not broken, "\n".join(broken)
