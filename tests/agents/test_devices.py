"""Agents of Keras whose mini-batches are divided among devices."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import COMPILED_LIGHTLY, run_python

SNIPPET = Path(__file__).parent / "snippets" / "keras_devices.py"
EQUAL = ["plain", "each sample", "PR", "clipped", "PPO", "HER", "MARL", "processes"]
PROGRAMS = """
import json, sys
import tensorflow as tf

devices = int(sys.argv[1])
parts = [tf.config.LogicalDeviceConfiguration()] * devices
tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], parts)
class Mirrored(tf.distribute.MirroredStrategy):  # without a GPU it takes the first part alone
    def __init__(self):
        super().__init__([f"CPU:{i}" for i in range(devices)])
tf.distribute.MirroredStrategy = Mirrored
from tests.agents import documented
print(json.dumps(documented.run(documented.DISTRIBUTED, "tensorflow", sys.argv[2:])))
"""
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
thorough = pytest.mark.thorough
BOTH = ("tensorflow", "jax")


def said(engine: Any, *names: str) -> dict[str, Any]:
    if importlib.util.find_spec(engine) is None:
        pytest.skip(f"{engine} is not installed")
    of_jax = engine == "jax"  # which reads the number of devices when it is imported
    light = COMPILED_LIGHTLY if of_jax else {}
    (found,) = run_python(SNIPPET, *names, engine=engine, timeout=580, env=light, forked=not of_jax)
    return dict(found)


def check_equal(found: dict[str, Any]) -> None:
    """Training was that of one device but for rounding, and twice the same to the bit."""
    assert found["far"] < 1e-5 and found["losses"] < 1e-5, found
    assert found["rewards"] and found["again"] and found["learned"] > 0, found


@thorough
@pytest.mark.parametrize("engine", BOTH)
@pytest.mark.parametrize("name", EQUAL)
def test_training_on_two_devices_is_that_of_one(engine: Any, name: str) -> None:
    check_equal(said(engine, name)[name])


@thorough
@pytest.mark.parametrize("engine", BOTH)
def test_it_goes_on_from_a_file_and_after_a_stop(engine: Any) -> None:
    found = said(engine, "goes on", "dropout")
    assert found["goes on"] == found["dropout"] == dict.fromkeys(found["dropout"], True)


@pytest.mark.parametrize("engine", BOTH)
def test_an_agent_on_two_devices_learns(engine: Any) -> None:
    """Of ten steps, an action without learning is right in five, give or take."""
    before, after = said(engine, "score")["score"]
    assert before < 8 and after >= 9.5, (before, after)


@pytest.mark.parametrize("engine", ["tensorflow", pytest.param("jax", marks=thorough)])
def test_finders_take_optimizers_made_outside_of_the_scope(engine: Any) -> None:
    found = said(engine, "outside")["outside"]
    assert all(found.values()), found


@thorough
@pytest.mark.parametrize("engine", BOTH)
def test_files_and_sizes(engine: Any) -> None:
    found = said(engine, "files", "sizes")
    assert found["criterion"] == [2, 2] and found["parameters"] == 0.0
    assert found["lowered"] == [
        "a mini-batch of 9 is not divisible by 2 devices; 8 rows are used instead."
    ]
    assert (found["first"], found["of set"]) == (12, 8)
    assert "1 cannot be divided among 2 devices. | give batch=2" in found["fewer"]
    assert found["uneven"] and found["moved"] != 0.01


@thorough
@pytest.mark.timeout(900)
@pytest.mark.parametrize("devices", [1, 2])
def test_the_documented_programs_run(devices: int) -> None:
    pytest.importorskip("tensorflow")
    from tests.agents import documented

    names = list(documented.DISTRIBUTED)
    (found,) = run_python(PROGRAMS, str(devices), *names, engine="tensorflow", timeout=880)
    assert found == dict.fromkeys(names, True), "\n".join(map(str, found.values()))
