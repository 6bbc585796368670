"""The advice of `runs` and of the trainer door."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import torch

import tandem
from tandem import trainer
from tandem.runs import verification
from tandem.runs.autosave import Policy
from tests.advice.conftest import body, cart
from tests.advice.net import case, follows
from tests.advice.worlds import without
from tests.test_trainer import SMALL, small


def done(fix: str, **names: Any) -> Any:
    """What the program in a fix gives, with `...` for the one name that it leaves out."""
    (value,) = names.values()
    code = fix[fix.index("tandem.") :].rstrip(".").replace("...", "it")
    return eval(code, {"tandem": tandem, "it": value})


# Settings of a run, and of what it is given


def policy(**given: Any) -> None:
    Policy(**given).check()


def start(**given: Any) -> None:
    trainer.session("ppo", "CartPole-v1", framework="torch", **{**SMALL, **given})


def begin(algorithm: Any = None, env: Any = None, **given: Any) -> None:
    trainer.session(algorithm, env, framework="torch", **{**SMALL, **given})


def scored(agent: Any) -> None:
    tandem.evaluate(agent, "CartPole-v1", 1, max_steps=5)


@pytest.mark.parametrize(
    "case",
    [
        case(
            "trainer.py:_refuse_of_resumed",
            start,
            {"extend": True},
            "or leave it out",
            {"extend": False},
        ),
        case("trainer.py:session 2", start, {"seed": 2**63}),
        case(
            "trainer.py:_config",
            start,
            {"cluster": "auto"},
            "or leave cluster out",
            {"cluster": ""},
        ),
        case(
            "trainer.py:_as_json",
            begin,
            {"algorithm": "ppo", "env": "FrozenLake-v1", "env_kwargs": {"desc": {"SG"}}},
            "a callable that makes the environment",
            {
                "env": lambda: gymnasium.make("FrozenLake-v1", desc=["SG"]),
                "env_kwargs": None,
            },
        ),
    ],
)
def test_advice_on_what_a_run_is_given(case) -> None:
    case.follow()


def test_a_path_is_no_agent(runs) -> None:
    with follows("trainer.py:evaluate") as advice:
        scored(runs / "plain")
    scored(done(advice.fix.partition(",")[0].replace("path", "..."), path=runs / "plain"))
    assert "or result.agent of a run" in advice.fix
    scored(tandem.train(resume=runs / "plain").agent)


# Folders and files


# Checkpoints


def rewritten(file: Path, change: Any) -> None:
    """A checkpoint with other data."""
    with zipfile.ZipFile(file) as old:
        parts = {name: old.read(name) for name in old.namelist()}
    (index,) = (name for name in parts if name.endswith(".json"))
    data = json.loads(parts[index])
    change(data)
    with zipfile.ZipFile(file, "w") as new:
        for name, part in parts.items():
            new.writestr(name, json.dumps(data) if name == index else part)


# Going on, and verifying


@pytest.mark.parametrize(
    "case",
    [
        case(
            "trainer.py:_refuse_given",
            trainer.session,
            {"framework": "torch"},
            "leave these out",
            {"framework": None},
        ),
    ],
)
def test_advice_on_going_on(case, runs) -> None:
    case.follow(resume=runs / "plain")


def test_what_cannot_be_verified(runs) -> None:
    with follows("runs/verification.py:verify") as advice:
        verification.verify(runs / "own")
    told = advice.fix.replace("(folder", f"({str(runs / 'own')!r}")
    with follows("runs/verification.py:verify") as again:
        done(told, env=cart)
    verify = lambda **own: verification.verify(runs / "own", env=cart, **own)  # noqa: E731
    assert "verify it from a program" in again.fix and "network=..." in again.fix
    assert verify(network=body()).rows > 0
    place, optimizer = runs / "optimizer", torch.optim.SGD([torch.zeros(1)], lr=0.01)
    small(out=place, steps=32, optimizer=optimizer)
    with follows("runs/verification.py:verify") as advice:
        verification.verify(place)
    assert "optimizer=..." in advice.fix
    assert verification.verify(place, optimizer=optimizer).difference is None
    with follows("runs/verification.py:verify 2") as advice:
        verification.verify(runs / "extended")
    assert "verify one that was not extended" in advice.fix
    with follows("runs/verification.py:verify 4") as advice:
        verification.verify(runs / "plain", steps=1)
    assert "give more --steps" in advice.fix
    assert verification.verify(runs / "plain", steps=32).difference is None


# Libraries that a run can do without


def test_tensorboard(monkeypatch, tmp_path) -> None:
    with without(monkeypatch, "tensorboard"):
        with follows("runs/writers.py:TensorBoardWriter.__init__") as advice:
            small(out=tmp_path / "a", steps=32, tensorboard=True)
        (told,) = advice.assigned()
        small(out=tmp_path / "b", steps=32, **told)
    assert "pip install tensorboard" in advice.fix
    small(out=tmp_path / "c", steps=32, tensorboard=True)
