from __future__ import annotations

import math

import pytest

from benchmarks import tables
from benchmarks.measure import Pair, Run
from benchmarks.rows import Reach, find


def pair(
    short: float, long: float, steps: int = 1_000, updates: int = 500, *, start: float = 7.0
) -> Pair:
    """Runs of `steps` and three times as many; loops take `start` more than their steps."""
    first = Run(2.0, 1.0, start + short, short, steps, updates)
    return Pair(first, Run(3.0, 2.0, start + long, long / 2, 3 * steps, 3 * updates))


def test_speed_is_the_slope_in_which_compilation_has_no_part() -> None:
    measured = pair(5.0, 15.0)  # 2000 steps in 10 s, of which the processor's are 2.5
    assert measured.steps_per_second() == pytest.approx(200.0)
    assert pair(5.0, 15.0, start=99.0).steps_per_second() == pytest.approx(200.0)
    assert measured.updates_per_step == pytest.approx(0.5)
    assert measured.steps_per_second("cpu") == pytest.approx(800.0)
    assert measured.share_of_core == pytest.approx(0.25)
    # a slope of noise is no speed
    assert math.isnan(pair(5.0, 4.0).steps_per_second())
    assert tables.summary([pair(5.0, 4.0)])["steps_per_second"] is None


def test_a_summary_has_medians() -> None:
    found = tables.summary([pair(5.0, 5.0 + took) for took in (10.0, 20.0, 5.0)])
    assert found["steps_per_second"] == pytest.approx(200.0)  # of 200, 100 and 400
    assert found["spread"] == pytest.approx(1.5)
    assert found["updates_per_second"] == pytest.approx(100.0)
    assert found["startup"] == 2.5 and found["first_updates"] == 1.5
    assert [Pair.of(p) for p in found["pairs"]][1] == pair(5.0, 25.0)


def test_a_factor_needs_both_sides_and_a_share_the_limit() -> None:
    speeds = {"jax": 900.0, "sb3": 300.0, "sbx": None}
    found = {name: {"steps_per_second": speed} for name, speed in speeds.items()}
    assert tables.factor(found, "jax", "sb3") == pytest.approx(3.0)
    assert tables.factor(found, "jax", "sbx") is None
    assert tables.factor(found, "torch", "sb3") is None
    limit = {"environment": 20e-6, "products": 30e-6}
    assert tables.share_of_limit(10_000.0, limit) == pytest.approx(0.5)  # 50 of 100 microseconds
    assert tables.share_of_limit(None, limit) is None and tables.share_of_limit(1.0, None) is None


def test_a_row_measured_again_is_replaced_as_a_whole(tmp_path) -> None:
    """What is measured on another day is not set beside it."""
    dqn, again, sac = {"limit": 1, "contestants": {"jax": 1}}, {"contestants": {"sb3": 9}}, {"x": 3}
    old = {"seconds": 5, "rows": {"dqn": dqn, "sac": sac}}
    found = tables.merged(old, {"seconds": 3, "rows": {"dqn": again}})
    assert found == {"seconds": 3, "rows": {"dqn": again, "sac": sac}}
    assert tables.load(tmp_path / "speed.json") == {}  # what was not measured yet is empty


def test_the_table_has_factors() -> None:
    contestants = {
        "jax": tables.summary([pair(5.0, 6.0)]),  # 2000 steps/s
        "torch": tables.summary([pair(5.0, 15.0)]),  # 200
        "sb3": tables.summary([pair(5.0, 15.0)], "cpu") | {"steps_per_second": 250.0},
    }
    limit = {"environment": 5e-6, "products": 95e-6}
    said = tables.markdown({"rows": {"dqn": {"contestants": contestants, "limit": limit}}})
    lines = said.splitlines()
    (jax,) = (line for line in lines if line.startswith("| tandem, jax"))
    (torch,) = (line for line in lines if line.startswith("| tandem, torch"))
    # SBX has no number
    assert "| 2,000 |" in jax and "| 8.00 |" in jax and "| 20 % |" in jax
    assert "| 0.80 |" in torch
    assert any("CPU time" in line and "Stable-Baselines3" in line for line in lines)
    assert "5.00 µs in the environment and 95.00 µs in matrix" in said


def test_seconds_to_a_score_which_may_never_be_reached() -> None:
    row = find("seconds-to-475")
    assert isinstance(row, Reach)

    def line(jax: float | None, sb3: float | None) -> str:
        found = {"jax": {"runs": [{"seconds": jax, "steps": 9_999}]}}
        found["sb3"] = {"runs": [{"seconds": sb3, "steps": None}]}
        text = tables.markdown({"rows": {row.name: {"contestants": found}}})
        return next(line for line in text.splitlines() if line.startswith("| tandem, jax"))

    assert "| 8.0 | 8.0 | 9,999 |" in line(8.0, None) and "never" in line(None, 11.0)
    for seconds, median in (((3.0, None, 5.0), 5.0), ((None, None, 5.0), math.inf)):
        assert tables.median_reached([{"seconds": x} for x in seconds]) == median
