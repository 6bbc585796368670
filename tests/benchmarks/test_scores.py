"""Whether what is here still learns as well as learn.csv says."""

from __future__ import annotations

from argparse import Namespace
from statistics import mean

import pytest

from benchmarks import learn, learn_rows, learn_tables
from benchmarks.measure import ROOT

TOLD = learn_tables.read(ROOT / "benchmarks" / "results" / "learn.csv")


def least(lines: list[learn_tables.Line]) -> float:
    """A tenth of what the row's worst seed has, and three standard errors, under it."""
    worst = min(lines, key=lambda line: float(line["best_mean"]))
    score, deviation = float(worst["best_mean"]), float(worst["best_std"])
    return score - 0.1 * abs(score) - 3 * deviation / float(worst["episodes"]) ** 0.5


def test_a_loss_is_more_than_what_seeds_differ_by() -> None:
    names = ("best_mean", "best_std", "episodes")
    lines = [dict(zip(names, numbers, strict=True)) for numbers in (("-150", "80", "100"),)]
    assert least(lines) == pytest.approx(-150 - 15 - 24)


@pytest.mark.thorough
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("name", ["ppo-cartpole-jax", "dqn-cartpole-jax", "sac-pendulum-jax"])
def test_it_learns_as_well_as_it_did(name: str, tmp_path) -> None:
    """One seed of the row by its command, which on another machine may differ a little."""
    row, lines = learn_rows.find(name), [line for line in TOLD if line["row"] == name]
    assert len(lines) == len(row.seeds), f"learn.csv has {len(lines)} seeds of {name}"
    places = learn.Places(tmp_path / "runs", tmp_path)
    assert learn._start(row, 0, Namespace(out=str(tmp_path)), places).wait() == 0
    score = float(learn_tables.entry(row, 0, places.run(row, 0))["best_mean"])
    known = mean(float(line["best_mean"]) for line in lines)
    assert score >= least(lines), f"{name}: {score:.1f}, where learn.csv has {known:.1f}"
