"""Processes that work for another: what they say, how they are lost, that none stays behind."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tandem.workers.process import END, Process, WorkerLost, end
from tests.helpers import run_python
from tests.parallel.processes import gone, program


class Served:
    def __init__(self, start: int) -> None:
        self.number = start

    def add(self, more: int) -> int:
        self.number += more
        return self.number

    def about(self) -> list[Any]:
        frameworks = {"torch", "tensorflow", "jax", "keras", "matplotlib"} & set(sys.modules)
        return [os.getpid(), list(frameworks), os.environ["OMP_NUM_THREADS"]]

    def fail(self, message: str) -> None:
        raise ValueError(message)

    def exit(self, code: int) -> None:
        os._exit(code)

    def sleep(self, in_c: bool) -> None:
        if in_c:
            ctypes.PyDLL(None).sleep(3600)  # with the interpreter's lock
        time.sleep(3600)


def begun() -> Process:
    process = Process((), Served, 0)
    assert process.answer(60) is None
    return process


def test_it_keeps_what_it_made_and_answers() -> None:
    process = begun()
    for expected in (2, 4):
        process.ask("add", 2)
        assert process.answer(60) == expected
    process.ask("about")
    assert process.answer(60) == [process.pid, [], "1"] and process.pid != os.getpid()
    process.end()
    assert not process.runs


def test_what_cannot_be_made_is_told(system: str, monkeypatch) -> None:
    with pytest.raises(WorkerLost, match="raised TypeError"):
        Process((), Served).answer(60)
    monkeypatch.setattr("tandem.workers.process.BEGIN", "import sys; sys.exit(4); ")
    with pytest.raises(WorkerLost, match=r"exit code 4|was killed"):
        Process((), Served, 0).answer(60)


@pytest.mark.parametrize(
    ("name", "argument", "patience", "how"),
    [
        ("fail", "on purpose", 60.0, "raised ValueError: on purpose"),
        ("exit", 3, 60.0, "exit code 3"),
        ("sleep", False, 0.3, "did not respond for 0.3 s"),
        ("sleep", True, 0.3, "did not respond"),
    ],
)
def test_how_it_was_lost_is_told(system, name: str, argument: Any, patience: float, how) -> None:
    process = begun()
    process.ask(name, argument)
    with pytest.raises(WorkerLost, match=how) as caught:
        process.answer(patience)
    assert not process.runs and (name == "fail") == ("in fail" in caught.value.trace)


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
from tandem.workers.process import Process
from tandem.workers.shared_memory import SharedArrays
from tests.parallel.test_arrays import FORMS, Writer
from tests.parallel.test_process import Served

arrays = [SharedArrays.create(FORMS) for _ in range(2)]
processes = [Process(x.handle.inherits, Writer, x.handle) for x in arrays]
processes += [Process((), Served, 0) for _ in range(3)]
for process in processes:
    process.answer(60)
processes[-1].ask("sleep", not sys.argv[2])
if sys.argv[1] != "exit":
    processes[-2].ask("sleep", False)
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
def test_none_outlives_its_parent_even_one_that_never_returns(how: str, system: str) -> None:
    with program(PARENT, how, system) as parent:
        assert parent.stdout is not None
        pids = json.loads(parent.stdout.readline())
        assert len(pids) == 5
        parent.wait(30)
    assert gone(pids, 10 if system else 5)


SCRIPT = """
import contextlib, io, json
import gymnasium
import numpy as np
import tandem
from tandem.testing.environments import Game


class Mine(Game):
    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def observe(self):
        return np.full(1, self.t / 9, np.float32)

    def play(self, action):
        print("an environment may print")
        return float(action), self.t == 9


gymnasium.register("Mine-v0", Mine)
given = {"framework": "torch", "envs": 4, "workers": 2, "eval_episodes": 0, "final_episodes": 1}
for env in (lambda: Mine(), Mine, "Mine-v0"):
    with contextlib.redirect_stdout(io.StringIO()):
        run = tandem.train("a2c", env, steps=80, **given)
    print(json.dumps(run.summary["env_steps"]))
"""


@pytest.mark.slow
def test_a_plain_script_needs_no_guard_and_its_own_classes_travel() -> None:
    assert run_python(SCRIPT, engine="torch") == [80, 80, 80]
