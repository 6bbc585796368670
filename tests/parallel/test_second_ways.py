"""What runs on Linux runs on any POSIX system: workers, what they share, and how they end."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tandem
from tandem.parallel.process import Process, WorkerLost
from tandem.parallel.shared_memory import SharedArrays
from tandem.platforms import POSIX, VARIABLE
from tandem.runs.folder import read_run
from tandem.testing import environments as games
from tests.helpers import ROOT, runs
from tests.parallel.test_arrays import FORMS, Writer
from tests.parallel.test_process import Served

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


@pytest.fixture(autouse=True)
def posix(monkeypatch) -> None:
    monkeypatch.setenv(VARIABLE, POSIX)


def test_processes_share_arrays() -> None:
    arrays = SharedArrays.create(FORMS)
    assert not any(arrays[n].any() for n in FORMS)
    arrays["a/x"][:] = 2.0
    process = Process(arrays.handle.inherits, Writer, arrays.handle)
    assert process.answer(60) is None
    process.ask("write", 7.0)
    assert process.answer(60) == [2.0] * 15
    process.end()
    view = arrays["a/x"]
    del arrays
    gc.collect()
    assert (view == 7.0).all()  # the memory goes with its last array


def test_how_a_worker_was_lost_is_told() -> None:
    process = Process((), Served, 0)
    assert process.answer(60) is None
    process.ask("exit", 3)
    with pytest.raises(WorkerLost, match="exit code 3"):
        process.answer(60)
    process.end()


def test_one_that_never_begins_is_lost(monkeypatch) -> None:
    monkeypatch.setattr("tandem.parallel.process.BEGIN", "import sys; sys.exit(4); ")
    process = Process((), Served, 0)
    with pytest.raises(WorkerLost, match=r"exit code 4|was killed"):
        process.answer(60)
    process.end()


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_a_run_is_that_of_the_first_ways(name: str, monkeypatch, tmp_path: Path) -> None:
    algorithm, env, settings = RUNS[name]
    found = {}
    for system in ("", POSIX):
        monkeypatch.setenv(VARIABLE, system)
        tandem.train(algorithm, env, out=tmp_path / f"on{system}", **SMALL, **settings)
        found[system] = read_run(tmp_path / f"on{system}").table["fingerprint"]
    assert found[""] == found[POSIX]


PARENT = """
import json, os, sys, time
from pathlib import Path
from tandem.parallel.process import Process
from tandem.parallel.shared_memory import SharedArrays
from tests.parallel.test_arrays import FORMS, Writer
from tests.parallel.test_process import Served

arrays = [SharedArrays.create(FORMS) for _ in range(2)]
processes = [Process(x.handle.inherits, Writer, x.handle) for x in arrays]
processes.append(Process((), Served, 0))
for process in processes:
    process.answer(60)
processes[-1].ask("sleep", False)
print(json.dumps([p.pid for p in processes]), flush=True)
time.sleep(0.2)
if sys.argv[1] == "exit":
    sys.exit()
os.kill(os.getpid(), 9)
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["SIGKILL", "exit"])
def test_no_worker_outlives_a_parent(how: str, tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    with subprocess.Popen(
        [sys.executable, str(script), how],
        stdout=subprocess.PIPE,
        env=env,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        pids = json.loads(parent.stdout.readline())
        assert len(pids) == 3
        parent.wait(30)
    limit = time.monotonic() + 10
    while any(map(runs, pids)) and time.monotonic() < limit:
        time.sleep(0.05)
    assert not any(map(runs, pids))


def test_what_is_not_shared_any_more_leaves_no_descriptor() -> None:
    def there() -> int:
        return len(os.listdir("/dev/fd"))

    before = there()
    arrays = SharedArrays.create({"x": ((3, 5), "<f4")})
    view = arrays["x"]
    del arrays
    gc.collect()
    assert np.array_equal(view, np.zeros((3, 5)))
    del view
    gc.collect()
    assert there() == before
