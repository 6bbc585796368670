"""Compiled actions on JAX, and arrays that updates reuse."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers import run_python


@pytest.mark.slow
def test_actions_are_compiled_and_arrays_that_others_hold_stay() -> None:
    checks = run_python(Path(__file__).with_name("acting.py"), engine="jax", timeout=280)
    assert len(checks) == 6


def test_agents_come_before_jax_has_made_an_array() -> None:
    code = """
    import json
    import keras
    from jax import config
    from tandem.agents.rl import RL

    name = "jax_cpu_enable_async_dispatch"  # read with the first array

    class Agent(RL):
        def __init__(self):
            print(json.dumps(config.values[name]))

    print(json.dumps(config.values[name]))
    Agent()
    """
    assert run_python(code, engine="jax") == [True, False]
