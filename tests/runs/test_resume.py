"""Resuming is exact: a run in several sittings ends, bit for bit, where the uninterrupted one does;
on every engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers import COMPILED_LIGHTLY, run_python

SNIPPET = Path(__file__).parent / "snippets" / "resume.py"


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "engine",
    [
        *(pytest.param(e, marks=pytest.mark.slow) for e in ("torch", "jax")),
        *(pytest.param(e, marks=pytest.mark.thorough) for e in ("tensorflow", "keras-torch")),
    ],
)
def test_sittings_make_the_same_run(engine: str, tmp_path: Path) -> None:
    wanted = ["dqn", "ppo", "sac", "td3", "a2c_lstm", "acer"]
    if engine == "torch":
        wanted += ["ppo_plain", "qmix", "maddpg", "mappo"]
    if engine == "tensorflow":  # which compiles each sitting of each again
        wanted = ["dqn", "ppo", "sac", "acer"]
    cases = run_python(
        SNIPPET, str(tmp_path), engine, *wanted, engine=engine, timeout=550, env=COMPILED_LIGHTLY
    )  # type: ignore[arg-type]
    assert [c["case"] for c in cases] == wanted
    for case in cases:
        assert case["updates"] > 20
        assert len(set(case["ends"])) == len(case["ends"]), "every sitting did something"
        assert not case["arrays"] and not case["data"], case
        assert case["same_table"] and case["rows"] > 4
