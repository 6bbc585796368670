from __future__ import annotations

import math
import os

import pytest

from benchmarks import tables
from benchmarks.measure import Pair, Run
from benchmarks.rows import Reach, find


def pair(
    short: float, long: float, steps: int = 1_000, updates: int = 500, *, start: float = 7.0
) -> Pair:
    """Runs of `steps` and three times as many whose loops take `start` more than what their steps
    cost."""
    return Pair(
        Run(2.0, 1.0, start + short, short, steps, updates),
        Run(3.0, 2.0, start + long, long / 2, 3 * steps, 3 * updates),
    )


def test_speed_is_the_slope_in_which_compilation_has_no_part() -> None:
    assert pair(5.0, 15.0).steps_per_second() == pytest.approx(200.0)  # 2000 steps in 10 s
    assert pair(5.0, 15.0, start=99.0).steps_per_second() == pytest.approx(200.0)
    assert pair(5.0, 15.0).updates_per_step == pytest.approx(0.5)


def test_the_processors_clock_leaves_out_what_others_used() -> None:
    measured = pair(5.0, 15.0)  # 2.5 s of the processor in 10 s
    assert measured.steps_per_second("cpu") == pytest.approx(800.0)
    assert measured.share_of_core == pytest.approx(0.25)


def test_a_slope_of_noise_is_no_speed() -> None:
    assert math.isnan(pair(5.0, 4.0).steps_per_second())
    assert tables.summary([pair(5.0, 4.0)])["steps_per_second"] is None


def test_a_summary_has_medians() -> None:
    found = tables.summary([pair(5.0, 5.0 + took) for took in (10.0, 20.0, 5.0)])
    assert found["steps_per_second"] == pytest.approx(200.0)  # of 200, 100 and 400
    assert found["spread"] == pytest.approx(1.5)
    assert found["updates_per_second"] == pytest.approx(100.0)
    assert found["startup"] == 2.5 and found["first_updates"] == 1.5
    assert [Pair.of(p) for p in found["pairs"]][1] == pair(5.0, 25.0)


def test_a_factor_needs_both_sides() -> None:
    found = {
        "jax": {"steps_per_second": 900.0},
        "sb3": {"steps_per_second": 300.0},
        "sbx": {"steps_per_second": None},
    }
    assert tables.factor(found, "jax", "sb3") == pytest.approx(3.0)
    assert tables.factor(found, "jax", "sbx") is None
    assert tables.factor(found, "torch", "sb3") is None


def test_the_share_of_the_limit() -> None:
    limit = {"environment": 20e-6, "products": 30e-6}
    assert tables.share_of_limit(10_000.0, limit) == pytest.approx(0.5)  # 50 of 100 microseconds
    assert tables.share_of_limit(None, limit) is None and tables.share_of_limit(1.0, None) is None


def test_a_row_measured_again_is_replaced_as_a_whole() -> None:
    old = {
        "seconds": 5,
        "rows": {
            "dqn": {
                "date": "then",
                "limit": {"environment": 1},
                "contestants": {"jax": {"x": 1}, "sb3": {"x": 2}},
            },
            "sac": {"date": "then", "contestants": {"jax": {"x": 3}}},
        },
    }
    new = {"seconds": 3, "rows": {"dqn": {"date": "now", "contestants": {"jax": {"x": 9}}}}}
    found = tables.merged(old, new)
    assert found["seconds"] == 3
    assert found["rows"]["dqn"] == new["rows"]["dqn"], (
        "what is measured on another day is not set beside it"
    )  # type: ignore[index]
    assert found["rows"]["sac"] == old["rows"]["sac"]  # type: ignore[index]
    assert old["rows"]["dqn"]["contestants"]["jax"] == {"x": 1}  # type: ignore[index]


def test_a_file_is_written_as_a_whole_or_not_at_all(tmp_path, monkeypatch) -> None:
    path = tmp_path / "new" / "speed.md"
    tables.write(path, "first")

    def full(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="no space"):
        tables.write(path, "second")
    assert path.read_text(encoding="utf-8") == "first"
    assert [p.name for p in path.parent.iterdir()] == ["speed.md"]


def test_what_was_not_measured_yet_is_empty(tmp_path) -> None:
    assert tables.load(tmp_path / "speed.json") == {}


def test_the_table_has_factors() -> None:
    contestants = {
        "jax": tables.summary([pair(5.0, 6.0)]),  # 2000 steps/s
        "torch": tables.summary([pair(5.0, 15.0)]),  # 200
        "sb3": tables.summary([pair(5.0, 15.0)], "cpu"),
    }
    contestants["sb3"]["steps_per_second"] = 250.0
    data = {
        "rows": {
            "dqn": {"contestants": contestants, "limit": {"environment": 5e-6, "products": 95e-6}}
        }
    }
    lines = tables.markdown(data).splitlines()
    jax = next(line for line in lines if line.startswith("| tandem, jax"))
    torch = next(line for line in lines if line.startswith("| tandem, torch"))
    # SBX has no number
    assert "| 2,000 |" in jax and "| 8.00 |" in jax and "| 20 % |" in jax
    assert "| 0.80 |" in torch
    assert any("CPU time" in line and "Stable-Baselines3" in line for line in lines)
    assert "5.00 µs in the environment and 95.00 µs in matrix" in "\n".join(lines)


def test_a_run_that_never_reaches_the_score_took_forever() -> None:
    assert tables.median_reached([{"seconds": 3.0}, {"seconds": None}, {"seconds": 5.0}]) == 5.0
    assert (
        tables.median_reached([{"seconds": None}, {"seconds": None}, {"seconds": 5.0}]) == math.inf
    )


def test_the_table_of_seconds_has_each_seed() -> None:
    row = find("seconds-to-475")
    assert isinstance(row, Reach)

    def contestants(jax: float | None, sb3: float | None) -> dict[str, object]:
        return {
            "jax": {"runs": [{"seconds": jax, "steps": 9_999}]},
            "sb3": {"runs": [{"seconds": sb3, "steps": None}]},
        }

    def line(found: dict[str, object]) -> str:
        text = tables.markdown({"rows": {row.name: {"contestants": found}}})
        return next(line for line in text.splitlines() if line.startswith("| tandem, jax"))

    assert "| 8.0 | 8.0 | 9,999 |" in line(contestants(8.0, None))
    assert "never" in line(contestants(None, 11.0))
