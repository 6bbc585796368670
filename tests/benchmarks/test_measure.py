from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from benchmarks import limits, measure, rows
from benchmarks.measure import Pair, Run
from benchmarks.rows import Row


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
