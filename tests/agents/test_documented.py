"""The programs that Note_rl documents run here after their import lines are changed."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from tests.agents import documented
from tests.helpers import COMPILED_LIGHTLY, run_python

CHILD = """
import json, sys
from tests.agents import documented
print(json.dumps(documented.run(documented.KERAS, sys.argv[1], sys.argv[2:])))
"""


def test_every_import_line_has_its_row() -> None:
    for program in (*documented.TORCH.values(), *documented.KERAS.values()):
        lines = [x for x in documented.ported(program, "jax").splitlines() if "tandem" in x]
        assert len(lines) >= 2
        for line in lines:
            assert importlib.util.find_spec(line.split()[1]) is not None, line


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:processes_her")
@pytest.mark.parametrize(
    "name", [pytest.param("DQN", marks=pytest.mark.thorough), *list(documented.TORCH)[1:]]
)
def test_programs_of_torch(name: str) -> None:
    pytest.importorskip("torch")
    assert documented.run(documented.TORCH, "torch", [name]) == {name: True}


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.timeout(900)
@pytest.mark.parametrize("engine", ["tensorflow", "jax"])
def test_programs_of_keras(engine: Any) -> None:
    if importlib.util.find_spec(engine) is None:
        pytest.skip(f"{engine} is not installed")
    light = COMPILED_LIGHTLY if engine == "jax" else {}
    (found,) = run_python(CHILD, engine, *documented.KERAS, engine=engine, timeout=850, env=light)
    assert found == dict.fromkeys(documented.KERAS, True), "\n".join(map(str, found.values()))
