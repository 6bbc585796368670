"""The advice of the room drlbox, followed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import gymnasium
import pytest

import tandem
from tests.advice.net import case, follows
from tests.drlbox.test_makers import SHORT
from tests.helpers import run_python


def train(name: str = "a3c", **given: Any) -> None:
    assert tandem.make_trainer(name, **{**SHORT, "train_steps": 64, **given}).run().agent


def evaluator(name: str = "ac", **given: Any) -> None:
    tandem.make_evaluator(name, **{"load_model": "runs", **given})


@pytest.mark.parametrize(
    "each",
    [
        case(
            "drlbox/makers.py:Evaluator.__init__ 5",
            evaluator,
            {"max_steps": -1},
            "from 0 on",
            {"max_steps": 0},
        ),
    ],
)
def test_followed(each: Any) -> None:
    each.follow()


def test_what_an_evaluator_is_given(tmp_path: Path) -> None:
    def trained(name: str, env: str) -> dict[str, Any]:
        made = lambda: gymnasium.make(env)  # noqa: E731
        short = {**SHORT, "env_maker": made, "train_steps": 64, "final_episodes": 1}
        if name == "sac":
            short |= {"num_parallel": None, "hidden": (8,)}
        run = tandem.make_trainer(name, save_dir=str(tmp_path / name), **short).run()
        return {"env_maker": made, "load_model": str(run.folder), "num_episodes": 1}

    for name, env in (("dqn", "CartPole-v1"), ("sac", "CartPole-v1")):
        given = trained(name, env)
        with follows("drlbox/makers.py:Evaluator.agent") as advice:
            tandem.make_evaluator("acer", **given).run()
        assert len(tandem.make_evaluator(advice.quoted(), **given).run().returns) == 1
    given = trained("a3c", "Pendulum-v1")
    with follows("drlbox/makers.py:Evaluator._action") as advice:
        tandem.make_evaluator("ac", policy_type="greedy", **given).run()
    assert advice.fix == "leave policy_type out."
    assert len(tandem.make_evaluator("ac", **given).run().returns) == 1


def test_where_keras_is_not_installed(monkeypatch: Any) -> None:
    with monkeypatch.context() as patched, follows("drlbox/own_networks.py:read") as advice:
        patched.setitem(sys.modules, "keras", None)
        train(load_model="net.keras")
    # what it brings is followed in the child below
    assert advice.fix == "pip install 'tandem-rl[jax]'"


KERAS = """
import json
import sys
import gymnasium
import keras
import tandem
from tests.advice.net import follows


class Odd(keras.layers.Layer):
    def call(self, x):
        return keras.ops.abs(x)


def cartpole():
    return gymnasium.make("CartPole-v1")


path, x = f"{sys.argv[1]}/net.keras", keras.Input((4,))
keras.Model(x, keras.layers.Dense(2)(Odd()(x))).save(path)
given = {"env_maker": cartpole, "load_model": path, "num_episodes": 1}
with follows("drlbox/own_networks.py:read 2") as advice:
    tandem.make_evaluator("dqn", **given).run()
assert "give classes of your own in load_model_custom={'Name': Class}" in advice.fix
found = tandem.make_evaluator("dqn", **given, load_model_custom={"Odd": Odd}).run()
print(json.dumps(len(found.returns)))
three = lambda space: (x, x, x)
with follows("drlbox/own_networks.py:_unfit") as advice:
    tandem.make_trainer("a3c", feature_maker=three, env_maker=cartpole).run()
assert advice.fix.startswith("return (Input, feature)")


def feature(space):
    x = keras.Input(space.shape)
    return x, keras.layers.Dense(8)(x)


run = tandem.make_trainer(
    "a3c", feature_maker=feature, env_maker=cartpole, train_steps=64, num_parallel=1
).run()
print(json.dumps(run.summary["updates"]))
"""


@pytest.mark.slow
def test_models_and_files_of_keras(tmp_path: Path) -> None:
    assert run_python(KERAS, str(tmp_path), engine="jax") == [1, 2]
