"""Processes that work for another: what they say, how they are lost, that none stays behind."""

import ctypes
import gc
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tandem.errors import WorkerError
from tandem.workers.jobs import Caller, FunctionCall, Jobs, Processes, Request, results
from tandem.workers.process import END, Process, WorkerLost, end
from tandem.workers.shared_memory import SharedArrays, shape_dtype
from tests.helpers import run_python, runs
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


def test_it_keeps_what_it_made_answers_and_tells_of_a_kill() -> None:
    process = begun()
    for expected in (2, 4):
        process.ask("add", 2)
        assert process.answer(60) == expected
    process.ask("about")
    assert process.answer(60) == [process.pid, [], "1"] and process.pid != os.getpid()
    process.end()
    assert not process.runs
    process = begun()
    os.kill(process.pid, signal.SIGKILL)
    process.ask("add", 1)
    with pytest.raises(WorkerLost, match="was killed"):
        process.answer(60)


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
from tests.parallel.test_process import FORMS, Served, Writer

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


# Shared arrays


FORMS: dict[str, tuple[tuple[int, ...], str]] = {"a/x": ((3, 5), "<f4"), "a/y": ((), "<i8")}
FORMS |= {"empty": ((0, 2), "<f4"), "flags": ((7,), "|b1")}


class Writer:
    def __init__(self, handle: object) -> None:
        self.arrays = SharedArrays.attach(handle)  # type: ignore[arg-type]

    def write(self, value: float) -> list[float]:
        before: list[float] = self.arrays["a/x"].ravel().tolist()
        self.arrays["a/x"][:] = value
        self.arrays["flags"][2] = True
        return before


def test_they_are_zeros_of_their_shapes_and_apart() -> None:
    arrays = SharedArrays.create(FORMS)
    assert {n: shape_dtype(arrays[n]) for n in FORMS} == FORMS
    assert not any(arrays[n].any() for n in FORMS) and set(arrays.under("a")) == {"x", "y"}
    arrays["a/x"][:] = np.nan
    assert arrays["a/y"] == 0 and not arrays["flags"].any()
    assert all(arrays[n].__array_interface__["data"][0] % 64 == 0 for n in ("a/x", "a/y", "flags"))


def test_two_processes_see_the_same(system: str) -> None:
    arrays = SharedArrays.create(FORMS)
    assert not any(arrays[n].any() for n in FORMS)
    arrays["a/x"][:] = 2.0
    process = Process(arrays.handle.inherits, Writer, arrays.handle)
    assert process.answer(60) is None
    process.ask("write", 7.0)
    assert process.answer(60) == [2.0] * 15
    assert (arrays["a/x"] == 7.0).all() and np.flatnonzero(arrays["flags"]).tolist() == [2]
    process.end()


def test_nothing_is_left_in_the_system(system: str) -> None:
    for _ in range(3):  # what earlier tests left
        gc.collect()
    before = len(os.listdir("/dev/fd"))
    arrays = SharedArrays.create({"x": ((3, 5), "<f4")})
    file, view = os.stat(arrays.handle.fd), arrays["x"]
    del arrays
    gc.collect()
    view[:] = 1.0  # the memory goes with its last array
    assert file.st_nlink == 0 and view.sum() == 15  # no folder has a link to it
    del view
    gc.collect()
    assert len(os.listdir("/dev/fd")) == before


# Calls in processes: in order, side by side, made again where a process is lost


def square(x: int) -> tuple[int, int]:
    return x * x, os.getpid()


def unlucky(x: int, folder: Path, times: int) -> int:
    """Ends its process, the first times that it is called with this number."""
    marks = len(list(folder.glob(f"{x}-*")))
    (folder / f"{x}-{marks}-{os.getpid()}").touch()
    if x == 1 and marks < times:
        os.kill(os.getpid(), signal.SIGKILL)
    return x


def wait(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def fail(message: str) -> None:
    raise ValueError(message)


def named(function: Any, *each: tuple[Any, ...]) -> list[FunctionCall]:
    return [FunctionCall(f"call {i}", function, arguments) for i, arguments in enumerate(each)]


def test_results_are_in_order_and_calls_are_made_again_where_a_process_was_killed(tmp_path) -> None:
    done: list[int] = []
    calls = named(square, *((x,) for x in range(5)))
    found = results(calls, 2, lambda i, result: done.append(i))
    assert [r[0] for r in found] == [0, 1, 4, 9, 16] and sorted(done) == list(range(5))
    pids = {r[1] for r in found}
    fresh = results(named(square, (1,), (2,), (3,)), 1, most=1)
    assert len({pid for _, pid in fresh}) == 3
    assert len(pids) == 2 and os.getpid() not in pids and not any(map(runs, pids))
    calls = named(unlucky, (0, tmp_path, 2), (1, tmp_path, 2), (2, tmp_path, 2))
    with pytest.warns(UserWarning, match=r"call 1 was killed .*; it is run again") as warned:
        assert results(calls, 2) == [0, 1, 2]
    assert [str(w.message)[-9:] for w in warned] == ["(1 of 3).", "(2 of 3)."]


def test_what_raises_is_not_made_again_and_what_is_lost_too_often_ends_all(tmp_path) -> None:
    calls = named(unlucky, (1, tmp_path, 9))
    raises = pytest.raises(WorkerError, match="call 0 was killed")
    with pytest.warns(UserWarning, match="run again"), raises as caught:
        results(calls, 1, again=1)
    assert "1 had been lost before" in caught.value.expected and caught.value.fix
    assert not any(runs(int(mark.name.split("-")[-1])) for mark in tmp_path.iterdir())
    with pytest.raises(WorkerError, match="call 0 raised ValueError: mine") as caught:
        results(named(fail, ("mine",)), 1)
    assert "in fail" in str(caught.value)


def test_no_process_is_left_when_it_is_interrupted() -> None:
    jobs, began = Jobs(Processes(Caller), 2), time.monotonic()
    waits, running = [0.1, 60.0], list[int]()

    def heard(seconds: float, answer: Any) -> None:
        running.extend(worker.handle.pid for worker in jobs._running)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        jobs.run(lambda: (s := waits.pop(0), Request("call", (wait, s))) if waits else None, heard)
    assert running and not any(map(runs, running)) and time.monotonic() - began < 30


class Slow(Caller):
    def __init__(self) -> None:
        time.sleep(60)


@pytest.mark.parametrize(("make", "given", "late"), [(Caller, {}, 0.3), (Slow, {"start": 0.3}, 60)])
def test_a_job_and_a_start_have_their_time(make: Any, given: Any, late: float) -> None:
    waits, lost = [Request("call", (wait, 60), late)], list[Any]()
    jobs = Jobs(Processes(make), 1, **given)
    jobs.run(lambda: (0, waits.pop()) if waits else None, lambda i, x: lost.append(x))
    assert str(lost[0]) == "did not respond for 0.3 s" and lost[0].at_start is bool(given)
