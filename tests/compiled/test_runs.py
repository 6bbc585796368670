"""Compiled runs: their blocks compute what the host computes, however many are in a call; and runs
by the APIs: folders, callbacks, signals, resuming, what is refused."""

from pathlib import Path

import pytest

from tests.helpers import COMPILED_LIGHTLY, run_python

pytest.importorskip("jax")
SNIPPETS = Path(__file__).parent / "snippets"
OF_THE_HOST = ("the_update_is_the_backends", "advantages_are_the_hosts", "statistics_are_the_hosts")
OTHERS = ("the_ring_holds_what_was_seen", "what_is_not_finite_is_not_made")
OTHERS += ("environments_are_looked_at", "evaluations_are_of_whole_episodes")
CHECKS = [
    ("blocks", *OF_THE_HOST, *OTHERS),
    ("blocks", "calls_change_nothing"),
    ("runs", "whole_and_in_parts", "left_within_a_call", "what_cannot_be"),
]
THOROUGH = [
    ("blocks", "they_go_on_within_carries"),
    ("runs", "own_worlds_and_networks"),
    ("runs", "a_signal_is_heard_within_a_second"),
    ("runs", "cached"),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    "checks",
    [*CHECKS, *(pytest.param(checks, marks=pytest.mark.thorough) for checks in THOROUGH)],
    ids="-".join,
)
def test_compiled_runs(checks, tmp_path: Path) -> None:
    file, *names = checks
    given = {"engine": "jax", "timeout": 400, "env": COMPILED_LIGHTLY}
    run_python(SNIPPETS / f"{file}.py", str(tmp_path), *names, **given)
