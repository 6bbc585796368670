"""Keras agents on TensorFlow and JAX, on one device and on two; rules on every engine."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tandem.agents.rl import RL_pytorch
from tests.agents import documented, rule_cases
from tests.helpers import COMPILED_LIGHTLY, expect_installed, run_python

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
thorough = pytest.mark.thorough
BOTH = ("tensorflow", "jax")
jax_first = pytest.mark.parametrize("engine", ["jax", pytest.param("tensorflow", marks=thorough)])
SNIPPETS = Path(__file__).parent / "snippets"
RULES = """
import json
import keras
from tandem import RL
from tests.agents import rule_cases

adamw = lambda w: keras.optimizers.AdamW(0.01, 0.1, 0.9, 0.99, 1e-7)
print(json.dumps(rule_cases.rules(RL, adamw, lambda w: keras.optimizers.SGD(0.01))))
"""
BUILD = """
import importlib, json
import keras
import numpy as np
from tandem.backends.variables import read
from tandem.exploration import SoftmaxPolicy

found = {}
for name in ("PPO_with_build", "PPO_with_build_"):
    model = importlib.import_module(f"tandem.examples.keras.{name}").PPO(4, 16, 2, 0.2, 0.01, 2)
    start = read(model.actor.weights)
    model.set(policy=SoftmaxPolicy(), pool_size=500, batch=32, update_steps=100, PPO=True)
    optimizers = [keras.optimizers.Adam(), keras.optimizers.Adam()]
    model.train(keras.metrics.Mean(), optimizers, 10, processes=2, p=0)
    new, old = read(model.actor.weights), read(model.old_actor.weights)
    moved = any((x != y).any() for x, y in zip(start, new, strict=True))
    followed = all(np.array_equal(x, y) for x, y in zip(new, old, strict=True))
    found[name] = bool(model._assembly.learner.updates > 0 and moved and followed)
print(json.dumps(found))
"""
DOCUMENTED = """
import json, sys
from tests.agents import documented
print(json.dumps(documented.run(documented.KERAS, sys.argv[1], sys.argv[2:])))
"""
MIRRORED = """
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


def said(engine: Any, code: Any, *words: str, timeout: float = 580, **more: Any) -> dict[str, Any]:
    """What a snippet printed: one object."""
    expect_installed(engine)
    light = COMPILED_LIGHTLY if engine == "jax" else {}
    (found,) = run_python(code, *words, engine=engine, timeout=timeout, env=light, **more)
    return dict(found)


def check(found: Any, count: int) -> None:
    assert len(found) == count and all(x is True for x in found.values()), found


def test_rules_on_torch() -> None:
    adamw = lambda w: torch.optim.AdamW(w, 0.01, (0.9, 0.99), 1e-7, 0.1)  # noqa: E731
    check(rule_cases.rules(RL_pytorch, adamw, lambda w: torch.optim.SGD(w, 0.01)), 19)


@jax_first
@pytest.mark.parametrize(
    ("code", "count"),
    [
        (SNIPPETS / "keras_agent.py", 24),
        (SNIPPETS / "keras_adaptive.py", 11),
        (RULES, 23),
        (BUILD, 2),
    ],
    ids=["agent", "adaptive", "rules", "build"],
)
def test_on_keras(engine: Any, code: Any, count: int) -> None:
    check(said(engine, code), count)


def check_programs(engine: Any, code: str, word: str, programs: dict[str, str]) -> None:
    found = said(engine, code, word, *programs, timeout=880)
    assert found == dict.fromkeys(programs, True), "\n".join(map(str, found.values()))


@thorough
@pytest.mark.timeout(900)
@pytest.mark.parametrize("engine", BOTH)
def test_documented_programs(engine: Any) -> None:
    check_programs(engine, DOCUMENTED, engine, documented.KERAS)


@thorough
@pytest.mark.timeout(900)
@pytest.mark.parametrize("devices", "12")
def test_documented_programs_of_devices(devices: str) -> None:
    check_programs("tensorflow", MIRRORED, devices, documented.DISTRIBUTED)


def on_two(engine: Any, *names: str) -> dict[str, Any]:
    forked = engine != "jax"  # which reads the number of devices when it is imported
    return said(engine, SNIPPETS / "keras_devices.py", *names, forked=forked)


@thorough
@pytest.mark.parametrize("engine", BOTH)
@pytest.mark.parametrize(
    "name", ["plain", "each sample", "PR", "clipped", "PPO", "HER", "MARL", "processes"]
)
def test_training_on_two_devices_is_that_of_one(engine: Any, name: str) -> None:
    """But for rounding; and twice it is the same to the bit."""
    found = on_two(engine, name)[name]
    assert found["far"] < 1e-5 and found["losses"] < 1e-5, found
    assert found["rewards"] and found["again"] and found["learned"] > 0, found


@thorough
@pytest.mark.parametrize("engine", BOTH)
def test_it_goes_on_from_a_file_and_after_a_stop(engine: Any) -> None:
    found = on_two(engine, "goes on", "dropout")
    assert found["goes on"] == found["dropout"] == dict.fromkeys(found["dropout"], True)


@pytest.mark.parametrize("engine", BOTH)
def test_an_agent_on_two_devices_learns(engine: Any) -> None:
    """Of ten steps, an action without learning is right in five, give or take."""
    before, after = on_two(engine, "score")["score"]
    assert before < 8 and after >= 9.5, (before, after)


@pytest.mark.parametrize("engine", ["tensorflow", pytest.param("jax", marks=thorough)])
def test_finders_take_optimizers_made_outside_of_the_scope(engine: Any) -> None:
    check(on_two(engine, "outside")["outside"], 8)


@thorough
@pytest.mark.parametrize("engine", BOTH)
def test_files_and_sizes(engine: Any) -> None:
    found = on_two(engine, "files", "sizes")
    assert found["criterion"] == [2, 2] and found["parameters"] == 0.0
    lowered = "a minibatch of 9 is not divisible by 2 devices; 8 rows are used instead."
    assert found["lowered"] == [lowered]
    assert (found["first"], found["of set"]) == (12, 8)
    assert "1 cannot be divided among 2 devices. | give batch=2" in found["fewer"]
    assert found["uneven"] and found["moved"] != 0.01
