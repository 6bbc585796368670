"""Compiled runs by the doors: folders, callbacks, signals, resuming, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.helpers import COMPILED_LIGHTLY, run_python

pytest.importorskip("jax")
SNIPPET = Path(__file__).parent / "snippets" / "runs.py"


def found(folder: Path, *names: str) -> Any:
    arguments = (SNIPPET, str(folder), *names)
    (result,) = run_python(*arguments, engine="jax", timeout=400, env=COMPILED_LIGHTLY)
    return result


@pytest.mark.slow
def test_runs_and_their_folders(tmp_path: Path) -> None:
    doors = found(tmp_path, "whole_and_in_parts")["doors"]
    assert doors["compiled"] and doors["resumed"] and doors["verified"]
    assert doors["reason"] == "callback" and doors["host"] and doors["stepped"]
    assert doors["scores"] == [20, True, True] and doors["evaluation"] == [3, True]
    assert {"kl", "loss", "eval_mean", "return_mean", "episodes"} <= set(doors["columns"])


@pytest.mark.slow
@pytest.mark.thorough
def test_worlds_networks_and_optimizers_of_ones_own(tmp_path: Path) -> None:
    own = found(tmp_path, "own_worlds_and_networks")["own"]
    # on a processor long calls of updates are not compiled
    assert own == [[True] * 3] * 4 + [[False, True, True]]


@pytest.mark.slow
def test_a_session_that_was_left_within_a_call_says_so(tmp_path: Path) -> None:
    left = found(tmp_path, "left_within_a_call")["left"]
    assert "was left within the call that begins at step 0" in left["told"] and left["steps"]


@pytest.mark.slow
def test_what_cannot_be_compiled_is_refused_by_name(tmp_path: Path) -> None:
    refused = found(tmp_path, "what_cannot_be")["refused"]
    for told, (what, fix) in zip(
        refused,
        [
            ("with CartPole-v1, which is stepped in Python", "give such an environment"),
            ("on torch", "framework='jax'"),
            ("with prioritized=True", "give prioritized=False"),
            ("with n_step=3", "give n_step=1"),
            ("with memmap=True", "give memmap=False"),
            ("with recurrent=8", "give recurrent=0"),
            ("with noisy=factorised", "give noisy='no'"),
            ("with action_noise='gsde'", "give action_noise='gaussian'"),
            ("with workers=2", "leave workers out"),
            ("with impala, which replays sequences", "choose ppo"),
            ("with devices=2", "leave devices out"),
        ],
        strict=True,
    ):
        assert told.startswith("vectorization='compiled' ") and what in told and fix in told, told


@pytest.mark.slow
@pytest.mark.thorough
def test_a_signal_is_heard_within_a_second(tmp_path: Path) -> None:
    heard = found(tmp_path, "a_signal_is_heard_within_a_second")["signal"]
    assert heard["code"] and heard["said"] and heard["resumed"]


@pytest.mark.slow
@pytest.mark.thorough
def test_what_was_compiled_is_kept_for_later_runs(tmp_path: Path) -> None:
    (none, alone), (some, first), (same, second) = found(tmp_path, "cached")["cached"]
    assert none == 0 and some == same > 0 and alone == first == second
