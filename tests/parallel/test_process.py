"""Processes that work for another: what they say, how they are lost, and that they never stay
behind."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tandem.parallel.process import END, Process, WorkerLost, end
from tests.helpers import ROOT, run_python, runs


class Served:
    def __init__(self, start: int) -> None:
        self.number = start

    def add(self, more: int) -> int:
        self.number += more
        return self.number

    def about(self) -> dict[str, Any]:
        frameworks = sorted(
            {"torch", "tensorflow", "jax", "keras", "matplotlib"} & set(sys.modules)
        )
        return dict(pid=os.getpid(), frameworks=frameworks, threads=os.environ["OMP_NUM_THREADS"])

    def fail(self) -> None:
        raise ValueError("on purpose")

    def exit(self, code: int) -> None:
        os._exit(code)

    def sleep(self, in_c: bool) -> None:
        if in_c:
            ctypes.PyDLL(None).sleep(3600)  # with the interpreter's lock
        time.sleep(3600)


def test_it_keeps_what_it_made_and_answers() -> None:
    process = Process((), Served, 5)
    assert process.answer(60) is None
    for expected in (7, 9):
        process.ask("add", 2)
        assert process.answer(60) == expected
    process.ask("about")
    said = process.answer(60)
    assert (
        said["pid"] == process.pid != os.getpid()
        and said["frameworks"] == []
        and said["threads"] == "1"
    )
    process.end()
    assert not process.runs


def begun() -> Process:
    process = Process((), Served, 0)
    process.answer(60)
    return process


def test_what_it_raised_is_told_with_its_traceback() -> None:
    process = begun()
    process.ask("fail")
    with pytest.raises(WorkerLost, match="raised ValueError: on purpose") as caught:
        process.answer(60)
    assert "in fail" in caught.value.trace and not process.runs


def test_what_cannot_be_made_is_told() -> None:
    process = Process((), Served)
    with pytest.raises(WorkerLost, match="raised TypeError"):
        process.answer(60)


@pytest.mark.parametrize(
    ("name", "argument", "patience", "how"),
    [
        ("exit", 3, 60.0, "exit code 3"),
        ("sleep", False, 0.3, "stood still for 0.3 s"),
        ("sleep", True, 0.3, "stood still"),
    ],
)
def test_how_it_was_lost_is_told(name: str, argument: Any, patience: float, how: str) -> None:
    process = begun()
    process.ask(name, argument)
    with pytest.raises(WorkerLost, match=how):
        process.answer(patience)
    assert not process.runs


def test_a_kill_is_told_whether_it_was_asked_something_or_not() -> None:
    process = begun()
    os.kill(process.pid, signal.SIGKILL)
    process.ask("add", 1)
    with pytest.raises(WorkerLost, match="was killed"):
        process.answer(60)


def test_several_end_within_the_time_of_one() -> None:
    processes = [begun() for _ in range(3)]
    for process in processes[:2]:
        process.ask("sleep", True)
    began = time.monotonic()
    end(processes)
    assert not any(p.runs for p in processes) and time.monotonic() - began < 2 * END


PARENT = """
import json, os, signal, sys, time
from tandem.parallel.process import Process
from tests.parallel.test_process import Served

processes = [Process((), Served, 0) for _ in range(3)]
for process in processes:
    process.answer(60)
processes[0].ask("sleep", False)
processes[1].ask("sleep", True)
print(json.dumps([p.pid for p in processes]), flush=True)
time.sleep(0.2)
if sys.argv[1] == "exit":
    sys.exit()
os.kill(os.getpid(), getattr(signal, sys.argv[1]))
time.sleep(60)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
@pytest.mark.parametrize("how", ["SIGKILL", "SIGTERM", "exit"])
def test_none_outlives_its_parent_even_one_that_never_returns(how: str, tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    with subprocess.Popen(
        [sys.executable, str(script), how], stdout=subprocess.PIPE, env=env, text=True
    ) as parent:
        assert parent.stdout is not None
        pids = json.loads(parent.stdout.readline())
        assert len(pids) == 3
        parent.wait(30)
    limit = time.monotonic() + 5
    while any(map(runs, pids)) and time.monotonic() < limit:
        time.sleep(0.05)
    assert not any(map(runs, pids))


SCRIPT = """
import json
import gymnasium
import numpy as np
import tandem


class Mine(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.t += 1
        print("an environment may print")
        return np.full(1, self.t / 9, np.float32), float(action), self.t == 9, False, {}


gymnasium.register("Mine-v0", Mine)
steps = []
for env in (lambda: Mine(), Mine, "Mine-v0"):
    import contextlib, io

    with contextlib.redirect_stdout(io.StringIO()):
        run = tandem.train(
            "a2c",
            env,
            framework="torch",
            steps=80,
            envs=4,
            workers=2,
            eval_episodes=0,
            final_episodes=1,
        )
    steps.append(run.summary["env_steps"])
print(json.dumps(steps))
"""


@pytest.mark.slow
def test_a_plain_script_needs_no_guard_and_its_own_classes_travel() -> None:
    assert run_python(SCRIPT, engine="torch") == [[80, 80, 80]]
