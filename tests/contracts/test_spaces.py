"""Every algorithm × every kind of space × every engine: trained, or refused by name in three parts
before a folder exists, never in a traceback of another library."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers import COMPILED_LIGHTLY, run_python

SWEEP = Path(__file__).parent / "snippets" / "sweep.py"


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "chosen, trained, refused",
    [pytest.param("0", 100, 80, id="each"), pytest.param("150", 30, 30, id="by chance")],
)
def test_every_algorithm_with_every_kind_of_space(chosen, trained, refused) -> None:
    ((found, wrong),) = run_python(SWEEP, "torch", chosen, engine="torch", timeout=280)
    assert not wrong
    assert found["trained"] > trained and found["refused"] > refused


@pytest.mark.thorough
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("engine", ["torch", "keras-torch", "jax", "tensorflow"])
@pytest.mark.parametrize("count", ["0", "400"])
def test_the_whole_sweep(engine, count) -> None:
    ((found, wrong),) = run_python(
        SWEEP, engine, count, engine=engine, timeout=3500, env=COMPILED_LIGHTLY
    )
    assert not wrong
    assert found["trained"] > 80 and found["refused"] > 80
