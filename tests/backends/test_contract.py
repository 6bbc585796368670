"""The backends' contract (tests/backends/contract.py) on every engine, each in a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers import run_python

SCRIPT = Path(__file__).parent / "contract.py"
ENGINES = ["torch", "keras-torch"] + [pytest.param(e, marks=pytest.mark.slow) for e in ("jax", "tensorflow", "torch compile")]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_backend_keeps_its_contract(engine) -> None:
    framework, *flags = engine.split()
    checks = run_python(SCRIPT, framework, *flags, engine=framework, timeout=280)
    assert len(checks) >= 16
    broken = [f"{name}\n{fault}" for name, fault in checks if fault]
    assert not broken, "\n".join(broken)
