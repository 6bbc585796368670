"""Compiled runs by the doors: folders, callbacks, signals, resuming, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.helpers import COMPILED_LIGHTLY, run_python

pytest.importorskip("jax")
SNIPPET = Path(__file__).parent / "snippets" / "runs.py"
pytestmark = pytest.mark.slow


def found(folder: Path, *names: str) -> Any:
    arguments = (SNIPPET, str(folder), *names)
    (result,) = run_python(*arguments, engine="jax", timeout=400, env=COMPILED_LIGHTLY)
    return result


def test_runs_and_their_folders(tmp_path: Path) -> None:
    told = found(tmp_path, "whole_and_in_parts", "left_within_a_call", "what_cannot_be")
    doors, left = told["doors"], told["left"]
    assert doors["compiled"] and doors["resumed"] and doors["verified"]
    assert doors["reason"] == "callback" and doors["host"] and doors["stepped"]
    assert doors["scores"] == [20, True, True] and doors["evaluation"] == [3, True]
    assert {"kl", "loss", "eval_mean", "return_mean", "episodes"} <= set(doors["columns"])
    assert "was left inside the call that starts at step 0" in left["told"] and left["steps"]
    for said, what, fix in told["refused"]:
        assert said.startswith("vectorization='compiled' ") and what in said and fix in said, said


@pytest.mark.thorough
def test_worlds_networks_and_optimizers_of_ones_own(tmp_path: Path) -> None:
    own = found(tmp_path, "own_worlds_and_networks")["own"]
    # on a processor long calls of updates are not compiled
    assert own == [[True] * 3] * 4 + [[False, True, True]]


@pytest.mark.thorough
def test_a_signal_is_heard_within_a_second(tmp_path: Path) -> None:
    heard = found(tmp_path, "a_signal_is_heard_within_a_second")["signal"]
    assert heard["code"] and heard["said"] and heard["resumed"]


@pytest.mark.thorough
def test_what_was_compiled_is_kept_for_later_runs(tmp_path: Path) -> None:
    (none, alone), (some, first), (same, second) = found(tmp_path, "cached")["cached"]
    assert none == 0 and some == same > 0 and alone == first == second
