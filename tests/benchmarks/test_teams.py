"""The rows of benchmarks.teams say the same to both sides, and reports what was measured."""

import math
from typing import Any

import pytest

from benchmarks import tables, teams
from benchmarks.measure import Pair, Run
from benchmarks.teams_rows import ROWS, TeamRow, find
from tests.benchmarks.test_cluster import MACHINE

# what XuanCe 1.4.4 has in its files, as far as it is more or less work
SHIPPED: dict[str, dict[str, Any]] = {
    "mappo": {"parallels": 16, "buffer_size": 400, "n_epochs": 1, "n_minibatch": 1},
    "maddpg": {"parallels": 16, "buffer_size": 100_000, "batch_size": 256, "start_training": 1_000}
    | {"training_frequency": 25},
}


def pair(speed: float, updates: int = 10) -> Pair:
    """Runs of 1,000 and 3,000 steps, with a second of start-up."""
    each = 1_000 / speed
    return Pair(*(Run(1.0, 0.5, n * each, n * each, n * 1_000, n * updates) for n in (1, 3)))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_both_sides_are_asked_for_the_same_work(row: TeamRow) -> None:
    ours, theirs = row.ours, SHIPPED[row.algorithm] | row.theirs
    assert ours["envs"] == theirs["parallels"]
    if row.algorithm == "mappo":
        assert ours["envs"] * ours["rollout"] == theirs["buffer_size"]
        assert ours["batch_size"] == theirs["buffer_size"] // theirs["n_minibatch"]
        assert ours["epochs"] == theirs["n_epochs"]
    else:
        # They count 16 steps at once, and update where the count is a multiple of the frequency.
        between = math.lcm(ours["envs"], theirs["training_frequency"])
        assert ours["train_every"] == between and ours["updates_per_call"] == 1
        assert all(ours[name] == theirs[name] for name in ("batch_size", "buffer_size"))
    # runs end with an update, or the short and the long one would not differ by whole ones
    between = ours.get("train_every", ours["envs"] * ours.get("rollout", 1))
    assert row.steps % (teams.QUICK * between) == 0


def test_different_work_is_not_compared() -> None:
    row = find("mappo")
    teams.check_updates(row, {"jax": [pair(2.0, 100)], "xuance": [pair(1.0, 102)]})
    with pytest.raises(RuntimeError, match="differ"):
        teams.check_updates(row, {"jax": [pair(2.0, 100)], "xuance": [pair(1.0, 120)]})


def test_the_report_has_the_factor_and_the_share_of_the_bare_environment() -> None:
    found = MACHINE | {"bare": [4_000.0], "repeats": 1, "their_versions": {"xuance": "1.4.4"}}
    speeds = {"jax": 3_200.0, "xuance": 1_000.0}
    found["contestants"] = {name: tables.summary([pair(x)]) for name, x in speeds.items()}
    said = teams.markdown({"rows": {"mappo": found}})
    assert "| tandem, jax | 3,200 | 0 % | 3.20 | 80 % | 10.0 | 1.0 |" in said
    assert "| XuanCe | 1,000 | 0 % |  | 25 % | 10.0 | 1.0 |" in said
