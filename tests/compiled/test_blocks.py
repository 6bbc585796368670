"""Blocks of compiled runs: what they compute is what the host computes, and how many are in a call
changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.helpers import COMPILED_LIGHTLY, run_python

pytest.importorskip("jax")
SNIPPET = Path(__file__).parent / "snippets" / "blocks.py"
pytestmark = pytest.mark.slow


def found(*names: str) -> Any:
    (result,) = run_python(SNIPPET, *names, engine="jax", timeout=400, env=COMPILED_LIGHTLY)
    return result


@pytest.fixture(scope="module")
def quick() -> Any:
    return found(
        "the_update_is_the_backends",
        "advantages_are_the_hosts",
        "statistics_are_the_hosts",
        "the_ring_holds_what_was_seen",
        "what_is_not_finite_is_not_made",
        "environments_are_looked_at",
        "evaluations_are_of_whole_episodes",
    )


def test_updates_advantages_and_statistics_are_those_of_the_host(quick: Any) -> None:
    update = quick["update"]
    assert update["applied"] and update["far"] == 0 and update["moved"] > 1e-4
    assert len(quick["prepared"]) == 3
    for far, names in quick["prepared"]:
        assert far < 2e-5 and {"advantage", "return", "log_prob"} <= set(names)
    assert quick["statistics"] < 1e-4


def test_the_ring_holds_the_latest_transitions_with_their_true_ends(quick: Any) -> None:
    ring = quick["ring"]
    # 64 transitions of 4 environments; 160 steps are 40 of each, so 24 beyond one round
    assert ring["shape"] == [16, 4, 2] and ring["written"] == 24
    assert ring["steps"] and ring["rewards"] and ring["ends"]
    assert 0.3 < ring["chance"] < 0.7


def test_what_is_not_finite_is_named_and_not_made(quick: Any) -> None:
    assert "in update 5, which was not made" in quick["fault"]  # 4 of the first rollout hold
    assert quick["before"] == 4 and quick["held"] and quick["unmoved"]
    # not the learning rate, which `update 1` would be about; nor a score that is infinite
    says = "returned the reward NaN or infinity at step 5 of its episode."
    assert len(quick["looked"]) == 2 and all(one.endswith(says) for one in quick["looked"])


def test_evaluations_are_of_whole_episodes_within_a_budget(quick: Any) -> None:
    played, cut, lengths, count, ended = quick["played"]
    assert played == [[28.0] * 6, [7] * 6, [], 0, None]  # 1 + 2 + ... + 7
    assert cut == [[45.0] * 6, [9] * 6, [], 6, None]
    assert lengths == [8_000] * 2 and count == 2  # twice the longest episode of training
    assert ended == [[1.0] * 3, [1] * 3, [], 0, None]


def test_how_many_blocks_a_call_makes_changes_nothing() -> None:
    for name, one in found("calls_change_nothing").items():
        assert all(one[k] for k in ("calls", "singles", "resumed", "episodes", "metrics")), name
        assert one["steps"] == {"ppo": 2048, "dqn": 800}[name]
        assert one["updates"] == {"ppo": 64, "dqn": 2 * 76}[name]


@pytest.mark.thorough
def test_every_kind_of_run_learns_and_goes_on_exactly() -> None:
    told = found("they_go_on_within_carries")
    kinds = told["kinds"]
    assert len(kinds) == 22 and told["masked"] == [[True, 7.0, 7.0]] * 6
    for name, finite, same, updates in kinds:
        assert finite and same and updates > 0, name
