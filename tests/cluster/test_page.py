"""The page on clusters says what is true: its program runs, on a cluster and in one process."""

from __future__ import annotations

import re

import pytest

from tests.helpers import ROOT, run_python
from tests.pages import blocks

PAGE = (ROOT / "docs" / "advanced" / "cluster.md").read_text("utf-8")
(PROGRAM,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_the_program_runs_on_a_cluster(ray_address: str) -> None:
    printed = r"print(__import__('json').dumps([\1]))"
    code = re.sub(r"print\((.*)\)$", printed, PROGRAM, flags=re.MULTILINE)
    code = code.replace("steps=5_000", "steps=500")
    one, other, evaluation = run_python(code, timeout=200, env={"RAY_ADDRESS": ray_address})
    assert one[0] > 3 and other[0] > 3 and evaluation[0] > 5


@pytest.mark.slow
def test_the_program_runs_here() -> None:
    here = "\nprint(len(GymRunner(SimpleNamespace(runners=1, steps=300)).run()))\n"
    ((scores),) = run_python(PROGRAM.partition("\nif __name__")[0] + here)
    assert scores > 3


@pytest.mark.slow
@pytest.mark.thorough
def test_the_tutorials_program_runs_on_a_cluster(ray_address: str) -> None:
    page = (ROOT / "docs" / "tutorials" / "cluster.md").read_text("utf-8")
    *_, program = (block.text for block in blocks(page) if block.language == "python")
    assert "range(20_000)" in program
    program = program.replace("range(20_000)", "range(600)")
    steps, score = run_python(program, timeout=280, env={"RAY_ADDRESS": ray_address})
    assert len(steps) == 2 and max(steps) > 200 and score > 5
