"""What runs on one system runs on those that lack its first ways: workers, what they share, and how
they end, as on any POSIX system, and as on any system."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tandem
from tandem.parallel.process import Process, WorkerLost
from tandem.parallel.shared_memory import SharedArrays
from tandem.platforms import ANY, POSIX, VARIABLE
from tandem.runs.folder import read_run
from tandem.testing import environments as games
from tests.helpers import ROOT, own_processes, runs
from tests.parallel.test_arrays import FORMS, Writer
from tests.parallel.test_process import Served

pytestmark = pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="looks into /dev/shm")
SMALL: dict[str, Any] = {
    "framework": "torch",
    "device": "cpu",
    "eval_episodes": 0,
    "final_episodes": 1,
    "plots": False,
    "tensorboard": False,
    "hidden": (8,),
}
RUNS: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "lock-step": (
        "ppo",
        games.IdentityDict,
        {"envs": 4, "rollout": 8, "batch_size": 16, "steps": 128, "log_every": 64, "workers": 2},
    ),
    "ahead": (
        "dqn",
        games.Chain,
        {"envs": 2, "steps": 96, "log_every": 48, "learning_starts": 16, "workers": 2},
    ),
    "actor-learners, with shared replay": (
        "acer",
        games.Chain,
        {"envs": 1, "rollout": 8, "steps": 256, "log_every": 64, "learners": 2, "staleness": 1},
    ),
}


def named() -> set[str]:
    """The segments of memory that have a name, but for those that other processes have open: the
    tests beside these have some too."""
    found, own = {p.name for p in Path("/dev/shm").glob("psm_*")}, own_processes()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            if int(maps.parent.name) not in own:
                open_there = maps.read_text("utf-8", "replace")
                found = {name for name in found if name not in open_there}
    return found


@pytest.fixture
def second(request, monkeypatch) -> str:
    monkeypatch.setenv(VARIABLE, request.param)
    return str(request.param)


both = pytest.mark.parametrize("second", [POSIX, ANY], indirect=True)


@both
def test_processes_share_arrays(second: str) -> None:
    before, arrays = named(), SharedArrays.create(FORMS)
    assert len(named() - before) == (second == ANY)
    assert not any(arrays[n].any() for n in FORMS)
    arrays["a/x"][:] = 2.0
    process = Process(arrays.handle.inherits, Writer, arrays.handle)
    assert process.answer(60) is None
    process.ask("write", 7.0)
    assert process.answer(60) == [2.0] * 15
    process.end()
    assert len(named() - before) == (second == ANY)  # the other one has not taken it along
    view = arrays["a/x"]
    del arrays
    gc.collect()
    assert named() == before and (view == 7.0).all()  # the memory goes with its last array


@both
def test_how_a_worker_was_lost_is_told(second: str) -> None:
    process = Process((), Served, 0)
    assert process.answer(60) is None
    process.ask("exit", 3)
    with pytest.raises(WorkerLost, match="exit code 3"):
        process.answer(60)
    process.end()


def test_one_that_never_begins_is_lost(monkeypatch) -> None:
    monkeypatch.setenv(VARIABLE, ANY)
    monkeypatch.setattr("tandem.parallel.process.BEGIN", "import sys; sys.exit(4); ")
    process = Process((), Served, 0)
    with pytest.raises(WorkerLost, match=r"exit code 4|was killed"):
        process.answer(60)
    process.end()


def test_a_stranger_who_calls_is_sent_away(monkeypatch) -> None:
    """Whoever finds the port, and does not know the secret, is no worker."""
    from tandem.parallel import process as module

    said, started = [], module._started

    def intruded(begin: str, **how: Any) -> Any:
        port = int(begin.rstrip(")").rpartition(" ")[2])
        said.append(module.socket.create_connection(("127.0.0.1", port)))
        said[0].sendall(b"?" * module.SECRET)
        return started(begin, **how)

    monkeypatch.setenv(VARIABLE, ANY)
    monkeypatch.setattr(module, "_started", intruded)
    process = Process((), Served, 1)
    assert process.answer(60) is None
    process.ask("add", 1)
    assert process.answer(60) == 2
    assert said[0].recv(1) == b""  # hung up on
    said[0].close()
    process.end()


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_a_run_is_that_of_the_first_ways(name: str, monkeypatch, tmp_path: Path) -> None:
    algorithm, env, settings = RUNS[name]
    found, before = {}, named()
    for system in ("", POSIX, ANY):
        monkeypatch.setenv(VARIABLE, system)
        tandem.train(algorithm, env, out=tmp_path / f"on{system}", **SMALL, **settings)
        found[system] = read_run(tmp_path / f"on{system}").table["fingerprint"]
    assert found[""] == found[POSIX] == found[ANY]
    gc.collect()
    assert named() == before


PARENT = """
import json, os, sys, time
from pathlib import Path
from tandem.parallel.process import Process
from tandem.parallel.shared_memory import SharedArrays
from tests.parallel.test_arrays import FORMS, Writer
from tests.parallel.test_process import Served
from tests.parallel.test_second_ways import named

before = named()
arrays = [SharedArrays.create(FORMS) for _ in range(2)]
processes = [Process(x.handle.inherits, Writer, x.handle) for x in arrays]
processes.append(Process((), Served, 0))
for process in processes:
    process.answer(60)
processes[-1].ask("sleep", False)
print(json.dumps([[p.pid for p in processes], sorted(named() - before)]), flush=True)
time.sleep(0.2)
if sys.argv[1] == "exit":
    sys.exit()
os.kill(os.getpid(), 9)
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["SIGKILL", "exit"])
@both
def test_neither_worker_nor_memory_outlives_a_parent(second: str, how: str, tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    with subprocess.Popen(
        [sys.executable, str(script), how],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # the guard says what it removes
        env=env,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        pids, segments = json.loads(parent.stdout.readline())
        assert len(pids) == 3 and len(segments) == (2 if second == ANY else 0)
        parent.wait(30)
    limit = time.monotonic() + 10
    while (any(map(runs, pids)) or named() & set(segments)) and time.monotonic() < limit:
        time.sleep(0.05)
    assert not any(map(runs, pids)) and not named() & set(segments)


@both
def test_what_is_not_shared_any_more_leaves_no_descriptor(second: str) -> None:
    def there() -> int:
        return len(os.listdir("/dev/fd"))

    SharedArrays.create(FORMS)  # the guard has one of its own, once it is there
    gc.collect()
    before = there()
    arrays = SharedArrays.create({"x": ((3, 5), "<f4")})
    view = arrays["x"]
    del arrays
    gc.collect()
    assert np.array_equal(view, np.zeros((3, 5)))
    del view
    gc.collect()
    assert there() == before
