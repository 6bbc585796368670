"""The advice about several devices, followed in a process of its own on the engine that Keras runs
on; prints the fix that another process has to follow."""

from __future__ import annotations

import importlib
import json
import os
from typing import Any

from tandem import trainer
from tests.advice.net import Case, follows
from tests.advice.upper import QUIET

ENGINE = os.environ["KERAS_BACKEND"]
EVEN = "learning/devices.py:check_even"


def made(algorithm: str, env: str = "CartPole-v1", devices: int = 2, **given: Any) -> None:
    """A session on several devices, made and given up."""
    own = {**QUIET, "framework": ENGINE, "device": "cpu", "devices": devices, **given}
    trainer.session(algorithm, env, **own).loop.collector.close()


def main() -> None:
    """Sessions of two devices, for which the engine makes two; then one that wants four."""
    ppo = {"algorithm": "ppo", "rollout": 9, "envs": 10}
    for given in (
        ppo | {"batch_size": 45},
        ppo | {"envs": 5, "batch_size": 15},  # no batch of 45 rows would do
        ppo | {"recurrent": 8, "sequence": 3, "batch_size": 45},
        {"algorithm": "a2c", "envs": 3, "rollout": 5},
        {"algorithm": "dqn", "batch_size": 33},
        {"algorithm": "qmix", "env": "mpe/simple_spread_v3", "recurrent": 8, "sequence": 4}
        | {"batch_size": 60},
        {"algorithm": "a3c", "envs": 5},
    ):
        Case(EVEN, made, given).follow()
    layout = importlib.import_module(f"tandem.backends.keras_{ENGINE}_devices").Layout
    with follows("backends/__init__.py:too_few") as advice:
        layout("cuda", 3)  # JAX's own kind of devices, which here are no GPUs
    (fix,) = advice.assigned()
    if ENGINE == "jax":
        assert layout("cuda", count=fix["devices"]).count == 2
    with follows("backends/__init__.py:too_few 2") as advice:
        made("dqn", devices=4)
    fixes = {name: value for each in advice.assigned() for name, value in each.items()}
    made("dqn", devices=fixes["devices"])
    print(json.dumps(advice.fix))
