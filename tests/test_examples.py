"""The examples run, and A3C's learns."""

from typing import Any

import pytest

from tandem.examples import breakout_acer, cartpole_a3c
from tests.helpers import COMPILED_LIGHTLY, run_python


@pytest.mark.slow
def test_cartpole_by_a3c_is_solved_on_torch() -> None:
    result = cartpole_a3c.main("torch", verbose=False)
    assert result.summary["framework"] == "torch" and result.evaluation.mean >= 475


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("engine", ["jax", "tensorflow"])
def test_cartpole_by_a3c_is_solved_on_keras(engine: Any) -> None:
    code = """
from tandem.examples import cartpole_a3c
print(cartpole_a3c.main("keras", verbose=False).evaluation.mean)
"""
    (mean,) = run_python(code, engine=engine, timeout=280)
    assert mean >= 475


@pytest.mark.slow
def test_breakout_by_acer_on_torch(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = breakout_acer.main("torch", "64", final_episodes=1, num_parallel=1)
    assert result.folder.name == "ALE-Breakout-v5-run1"
    assert result.agent.observation.shape == (4, 84, 84)
    assert result.summary["updates"] >= 2  # 8 lists of 4 steps each


CODE = """
import json
from tandem.examples import breakout_acer, cartpole_a3c

print(json.dumps(cartpole_a3c.main("keras", "128", verbose=False).summary["updates"]))
given = {"final_episodes": 1, "verbose": False, "save_dir": None, "num_parallel": 1}
result = breakout_acer.main("keras", "32", **given)
print(json.dumps([result.summary["updates"], list(result.agent.observation.shape)]))
"""


@pytest.mark.slow
def test_examples_on_keras() -> None:
    found = run_python(CODE, engine="jax", timeout=200, env=COMPILED_LIGHTLY)
    assert found == [2, [1, [4, 84, 84]]]
