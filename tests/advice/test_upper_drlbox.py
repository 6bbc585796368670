"""The advice of the room drlbox, followed."""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path
from typing import Any

import gymnasium
import pytest

import tandem
from tandem.cli import main
from tests.advice.net import case, excepted, follows
from tests.drlbox.test_makers import SHORT, Whole, body, settings
from tests.helpers import run_python

torch = pytest.importorskip("torch")


def train(name: str = "a3c", **given: Any) -> None:
    assert tandem.make_trainer(name, **{**SHORT, "train_steps": 64, **given}).run().agent


def evaluator(name: str = "ac", **given: Any) -> None:
    tandem.make_evaluator(name, **{"load_model": "runs", **given})


EPISODES = {"num_episodes": 0}


@pytest.mark.parametrize(
    "each",
    [
        case(
            "drlbox/arguments.py:checked 2",
            settings,
            {"name": "a3c", "train_steps": "many"},
            "give a whole number",
            {"train_steps": 100},
        ),
        case(
            "drlbox/arguments.py:checked 2",
            settings,
            {"name": "dqn", "dqn_double": 1},
            "True or False",
            {"dqn_double": True},
        ),
        case(
            "drlbox/arguments.py:checked 2",
            settings,
            {"name": "a3c", "noisynet": "gi"},
            "'ig' or 'fg'",
            {"noisynet": "ig"},
        ),
        case(
            "drlbox/arguments.py:checked 2",
            settings,
            {"name": "a3c", "feature_maker": 3},
            "leave feature_maker out",
            {"feature_maker": None},
        ),
        case(
            "drlbox/makers.py:Trainer.__init__", settings, {"name": "a3x"}, "'a3c'", {"name": "a3c"}
        ),
        case(
            "drlbox/makers.py:Evaluator.__init__", evaluator, {"name": "acc"}, "'ac", {"name": "ac"}
        ),
        case(
            "drlbox/makers.py:Evaluator.__init__ 2",
            evaluator,
            {"num_episodes": 0},
            "from 1 on",
            {"num_episodes": 1},
        ),
        case(
            "drlbox/makers.py:Evaluator.__init__ 3",
            evaluator,
            {"render_timestep": -1},
            "from 0 on",
            {"render_timestep": 0},
        ),
        case(
            "drlbox/makers.py:Evaluator.__init__ 4",
            evaluator,
            {"seed": -1},
            "from 0 on",
            {"seed": 0},
        ),
        case(
            "drlbox/makers.py:Evaluator.__init__ 5",
            evaluator,
            {"max_steps": -1},
            "from 0 on",
            {"max_steps": 0},
        ),
        case("drlbox/makers.py:Evaluator.__init__ 6", evaluator, {"policy_type": "gredy"}),
        case("drlbox/makers.py:Evaluator.__init__ 7", evaluator, {"policy_eps": 2.0}),
        case("drlbox/makers.py:Evaluator.__init__ 8", evaluator, {"load_model": None}),
        case(
            "drlbox/own_networks.py:_unfit",
            train,
            {"feature_maker": lambda space: ()},
            "a feature",
            {"feature_maker": body},
        ),
        case(
            "drlbox/own_networks.py:_unfit",
            train,
            {"model_maker": lambda env: "net"},
            "a torch module",
            {"model_maker": Whole},
        ),
    ],
)
def test_followed(each: Any) -> None:
    each.follow()


def test_names_of_arguments() -> None:
    with follows("drlbox/arguments.py:checked") as advice:
        settings("a3c", rolout_maxlen=8)
    assert settings("a3c", **{advice.quoted(): 8}).rollout == 8
    with follows("drlbox/arguments.py:_renamed.settings") as advice:
        settings("a3c", opt_kwargs={"learning_rte": 1e-3})
    settings("a3c", opt_kwargs={advice.quoted(): 1e-3})
    with follows("drlbox/makers.py:Trainer.settings") as advice:
        settings("td3", rollout_maxlen=5)
    assert "leave rollout_maxlen out" in advice.fix
    settings("td3")
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        assert not main(advice.fix.split("`")[1].split()[1:])
    assert "--tau" in shown.getvalue()


def test_an_environment_has_to_be_made() -> None:
    with follows("drlbox/makers.py:_env_maker") as advice:
        train(env_maker=None)
    (text,) = [part for part in advice.fix.split("env_maker=") if part.startswith("lambda")]
    train(env_maker=eval(text.removesuffix(", say."), {"gymnasium": gymnasium}))


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


excepted(
    "drlbox/own_networks.py:read 2",
    because="tests/advice/test_upper_drlbox.py::test_models_and_files_of_keras, in a child",
)
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
