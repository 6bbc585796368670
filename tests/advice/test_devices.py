"""The advice about several devices."""

from __future__ import annotations

import json
import re
import textwrap
from typing import Any

import pytest

from tests.advice.net import case, follows
from tests.advice.upper import made
from tests.helpers import run_python

TWO = {"algorithm": "dqn", "env": "CartPole-v1", "devices": 2}


def engine(framework: str = "torch", devices: int = 1) -> None:
    """What a backend is asked for before it is made."""
    from tandem import backends

    backends.check_devices(framework, devices)


@pytest.mark.parametrize(
    "each",
    [
        case("backends/__init__.py:check_devices", engine, {"devices": 2}),
        case(
            "backends/__init__.py:check_devices", engine, {"devices": 4, "framework": "keras-torch"}
        ),
    ],
)
def test_followed(each: Any) -> None:
    each.follow()


def test_another_engine_is_refused_before_there_is_a_folder(tmp_path) -> None:
    pytest.importorskip("torch")
    with follows("backends/__init__.py:check_devices"):
        made(**TWO, framework="torch", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


CASES = "from tests.advice import devices_cases; devices_cases.main()"
FOUR = """
    import json
    from tests.advice.devices_cases import made
    print(json.dumps(made("dqn", devices=4)))
"""


@pytest.mark.slow
def test_advice_on_jax() -> None:
    (fix,) = run_python(CASES, engine="jax")
    (told,) = re.findall(r"(JAX_NUM_CPU_DEVICES)=4 before anything imports jax", fix)
    assert run_python(FOUR, engine="jax", env={told: "4"}) == [json.loads("null")]


@pytest.mark.thorough
def test_advice_on_tensorflow() -> None:
    (fix,) = run_python(CASES, engine="tensorflow")
    (line,) = re.findall(r"call (tf\.config\..*\* 4\)) where your program begins", fix)
    program = f"import tensorflow as tf\n{line}\ntf.zeros(1)\n" + textwrap.dedent(FOUR)
    assert run_python(program, engine="tensorflow") == [json.loads("null")]


AGENTS = "from tests.advice import agent_devices_cases; agent_devices_cases.main()"


@pytest.mark.slow
def test_advice_about_agents() -> None:
    assert run_python(AGENTS, engine="tensorflow") == []
