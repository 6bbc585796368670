import json
import math
import subprocess
from typing import Any

import pytest

from benchmarks import limits, measure, rows, tables
from benchmarks.measure import Pair, Run
from benchmarks.rows import Reach, Row, find


def run(steps: int, updates: int = 0, loop: float = 1.0, first: float | None = 0.5) -> Run:
    return Run(1.0, first, loop, loop, steps, updates)


def test_calibration_ends_with_a_length_that_takes_long_enough() -> None:
    def measured(steps: int) -> Run:  # 1000 steps/s after 2 s of compiling
        return run(steps, loop=2.0 + steps / 1_000, first=2.0)

    assert 5_000 <= measure.calibrated(measured, 1_000, seconds=5.0) <= 10_000
    with pytest.raises(RuntimeError, match="less than"):  # of work that takes no time
        measure.calibrated(lambda steps: run(steps, loop=0.5, first=0.5), 1, seconds=5.0)


def test_other_work_is_not_compared_and_everyone_has_a_turn() -> None:
    dqn, ppo = rows.find("dqn"), rows.find("ppo-native")
    assert isinstance(dqn, Row) and isinstance(ppo, Row)
    measure.check_updates(dqn, "sb3", Pair(run(1_024, 128), run(3_072, 9 * 128)))
    says = "made 129 updates in 1024 steps of dqn; the settings ask for 128"
    with pytest.raises(RuntimeError, match=says):
        measure.check_updates(dqn, "sb3", Pair(run(1_024, 129), run(3_072, 9 * 128)))
    # 100 and 300 rollouts, less the steps that only reset
    resetting = Pair(run(25_400, 2_000), run(76_600, 6_000))
    measure.check_updates(ppo, "jax", resetting)
    with pytest.raises(RuntimeError):
        measure.check_updates(ppo, "sb3", resetting)  # plain environments reset within a step
    turns = [f"{i}{name}" for i, name in measure.alternating(["a", "b"], 3)]
    assert turns == ["0a", "0b", "1b", "1a", "2a", "2b"]


def test_jobs_say_the_same_to_both_sides() -> None:
    row = rows.find("sac")
    ours, theirs, jax = (measure.job(row, name, 5_000, 3) for name in ("torch", "sb3", "jax"))
    assert ours["kind"] == "ours" and theirs["kind"] == "peer"
    assert all(ours[key] == theirs[key] for key in ("algorithm", "env", "envs", "steps", "seed"))
    assert ours["settings"]["compile"] == "yes" and "compile" not in jax["settings"]
    # waiting for a score is another kind of job
    row = rows.find("seconds-to-475")
    ours, theirs = (measure.job(row, name, 0, 0) for name in ("torch", "sbx"))
    assert (ours["kind"], theirs["kind"]) == ("ours-reach", "peer-reach")
    assert ours["steps"] == theirs["steps"] == 100_000
    assert "compile" not in ours["settings"]  # as a user's run, it decides for itself


def test_a_child_has_one_thread_and_its_engine(monkeypatch) -> None:
    seen = {}

    def fake(command: list[str], env: dict[str, str], **_: object) -> Any:
        seen.update(env=env, job=json.loads(command[-1]))
        return subprocess.CompletedProcess(command, 0, 'chatter\n{"answer": 42}\n', "")

    monkeypatch.setenv("KERAS_BACKEND", "torch")
    monkeypatch.setattr(subprocess, "run", fake)
    assert measure.spawn({"contestant": "jax", "kind": "ours"}, 1) == {"answer": 42}
    assert seen["env"]["KERAS_BACKEND"] == "jax" and seen["env"]["OMP_NUM_THREADS"] == "1"
    assert seen["job"]["core"] == 1 and seen["job"]["spawned"] > 0
    measure.spawn({"contestant": "sb3", "kind": "peer"}, None)
    assert "KERAS_BACKEND" not in seen["env"]


def test_the_quickest_of_many_timings_counts(monkeypatch) -> None:
    clock, timings = 0.0, 0

    def play(calls: int) -> None:
        nonlocal clock, timings
        timings += 1
        # others use the machine, except now and then
        clock += calls * 1e-5 * (1 if timings % 7 == 0 else 20)

    monkeypatch.setattr(limits, "perf_counter", lambda: clock)
    assert limits.quickest(play, unit=10) == pytest.approx(1e-5)


def pair(short: float, long: float, start: float = 7.0) -> Pair:
    """Runs of 1,000 and 3,000 steps; loops take `start` more than their steps."""
    first = Run(2.0, 1.0, start + short, short, 1_000, 500)
    return Pair(first, Run(3.0, 2.0, start + long, long / 2, 3_000, 1_500))


def test_speed_is_the_slope_without_compilation_and_a_summary_has_medians() -> None:
    measured = pair(5.0, 15.0)  # 2000 steps in 10 s, of which the processor's are 2.5
    assert measured.steps_per_second() == pytest.approx(200.0)
    assert pair(5.0, 15.0, start=99.0).steps_per_second() == pytest.approx(200.0)
    assert measured.updates_per_step == pytest.approx(0.5)
    assert measured.steps_per_second("cpu") == pytest.approx(800.0)
    assert measured.share_of_core == pytest.approx(0.25)
    # a slope of noise is no speed
    assert math.isnan(pair(5.0, 4.0).steps_per_second())
    assert tables.summary([pair(5.0, 4.0)])["steps_per_second"] is None
    found = tables.summary([pair(5.0, 5.0 + took) for took in (10.0, 20.0, 5.0)])
    assert found["steps_per_second"] == pytest.approx(200.0)  # of 200, 100 and 400
    assert found["spread"] == pytest.approx(1.5)
    assert found["updates_per_second"] == pytest.approx(100.0)
    assert found["startup"] == 2.5 and found["first_updates"] == 1.5
    assert [Pair.of(p) for p in found["pairs"]][1] == pair(5.0, 25.0)


def test_a_factor_needs_both_sides_and_a_row_measured_again_is_replaced(tmp_path) -> None:
    speeds = {"jax": 900.0, "sb3": 300.0, "sbx": None}
    found = {name: {"steps_per_second": speed} for name, speed in speeds.items()}
    assert tables.factor(found, "jax", "sb3") == pytest.approx(3.0)
    assert tables.factor(found, "jax", "sbx") is None
    assert tables.factor(found, "torch", "sb3") is None
    limit = {"environment": 20e-6, "products": 30e-6}
    assert tables.share_of_limit(10_000.0, limit) == pytest.approx(0.5)  # 50 of 100 microseconds
    assert tables.share_of_limit(None, limit) is None and tables.share_of_limit(1.0, None) is None
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
    rows = ("| tandem, jax", "| tandem, torch")  # SBX has no number
    jax, torch = (line for line in lines if line.startswith(rows))
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
