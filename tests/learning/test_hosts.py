"""Runs whose processes were launched together for JAX, by jax.distributed, and for TensorFlow, by
TF_CONFIG."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tandem.runs.folder import read_run
from tests.helpers import ROOT
from tests.learning.test_launch import WORDS, ended, free_port, under_way

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
thorough = pytest.mark.thorough
ENGINES = [
    "jax",
    pytest.param("tensorflow", marks=thorough),
]


def told(engine: str, rank: int, count: int, ports: list[str]) -> dict[str, str]:
    """What a launcher says to each process."""
    if engine == "tensorflow":
        workers = [f"localhost:{port}" for port in ports]
        task = {"type": "worker", "index": rank}
        return {"TF_CONFIG": json.dumps({"cluster": {"worker": workers}, "task": task})}
    return {
        "JAX_COORDINATOR_ADDRESS": f"localhost:{ports[0]}",
        "JAX_NUM_PROCESSES": str(count),
        "JAX_PROCESS_ID": str(rank),
    }


def launched(engine: str, *words: Any, count: int = 2) -> list[subprocess.Popen[str]]:
    """Processes of the command, with what each is told."""
    pytest.importorskip(engine)
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    ports = [free_port() for _ in range(count)]
    return [
        subprocess.Popen(
            [sys.executable, "-m", "tandem", *map(str, words)],
            env={
                **os.environ,
                "PYTHONPATH": path,
                "CUDA_VISIBLE_DEVICES": "-1",
                **told(engine, rank, count, ports),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]


def alone(*words: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tandem", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize("engine", ENGINES)
def test_it_is_the_run_of_one_process_with_as_many_devices(engine: str, tmp_path: Path) -> None:
    run, one = tmp_path / "run", tmp_path / "one"
    (code, said, error), other = ended(launched(engine, *WORDS, "--steps", 400, "--out", run))
    assert code == 0, error
    assert other[:2] == (0, "") and f"tandem evaluate {run}" in said
    made = alone(*WORDS, "--steps", 400, "--out", one, "--framework", engine, "--devices", 2)
    assert made.returncode == 0, made.stderr
    assert read_run(run).table["fingerprint"] == read_run(one).table["fingerprint"]


@thorough
@pytest.mark.parametrize("engine", ["jax", "tensorflow"])
def test_one_that_is_resumed_is_the_same_run(engine: str, tmp_path: Path) -> None:
    run, whole = tmp_path / "run", tmp_path / "whole"
    words = [*WORDS, "--steps", 1600]
    for folder, more in ((whole, []), (run, ["--stop-at", 800])):
        assert [c for c, *_ in ended(launched(engine, *words, "--out", folder, *more))] == [0, 0]
    resumed = ended(launched(engine, "train", "--resume", run, "--quiet"))
    assert [code for code, *_ in resumed] == [0, 0], resumed
    prints = read_run(whole).table["fingerprint"]
    assert len(prints) >= 5 and read_run(run).table["fingerprint"] == prints
    checked = alone("verify", run)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@thorough
def test_pictures_on_two_devices_of_each_of_two_processes(tmp_path: Path, monkeypatch: Any) -> None:
    """Where the network convolves, each update is a call of its own."""
    monkeypatch.setenv("JAX_NUM_CPU_DEVICES", "2")
    words = ["train", "dqn", "tests.learning.pictures:Pictures-v0", *WORDS[3:]]
    at = words.index("--hidden")
    words = [*words[:at], *words[at + 2 :], "--steps", "200", "--train-every", "16"]
    run, one = tmp_path / "run", tmp_path / "one"
    found = ended(launched("jax", *words, "--out", run))
    assert [x[:2] for x in found][1] == (0, "") and found[0][0] == 0, found
    monkeypatch.setenv("JAX_NUM_CPU_DEVICES", "4")
    made = alone(*words, "--framework", "jax", "--devices", 4, "--out", one)
    assert made.returncode == 0, made.stderr
    losses = [[float(x) for x in read_run(r).table["loss"] if x] for r in (run, one)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4) and losses[0]


@thorough
@pytest.mark.parametrize("engine", ["jax", "tensorflow"])
def test_what_does_not_fit_is_refused_and_all_end(engine: str, tmp_path: Path) -> None:
    for words, what in (
        (["--devices", "3"], "devices=3, and 2 processes were launched, with 2 devices"),
        (["--framework", "torch"], f"2 processes were launched, for {engine}, and the framework"),
    ):
        out = tmp_path / "run"
        first, other = ended(launched(engine, *WORDS, "--steps", 1600, "--out", out, *words))
        assert first[0] == 2 and what in first[2], first
        assert other[0] == 0, other
        assert not out.exists()


@thorough
@pytest.mark.parametrize("engine", ["jax", "tensorflow"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_one_that_is_lost_is_named(engine: str, number: int, tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = [*WORDS, "--steps", 200_000, "--out", run, "--device-timeout", 5]
    processes = launched(engine, *words)
    under_way(processes, run)
    os.kill(processes[1].pid, number)
    began = time.monotonic()
    while processes[0].poll() is None and time.monotonic() < began + 60:
        time.sleep(0.1)
    took = time.monotonic() - began
    os.kill(processes[1].pid, signal.SIGCONT)  # then it ends by itself
    (code, _, error), other = ended(processes)
    assert took < 30 and code == 1, error
    how = "has died" if number == signal.SIGKILL else "stands still: no sign of life for 5 s"
    assert re.search(f"the process of rank 1, of 2 that were launched, {how}", error), error
    assert other[0] != 0
    more = ended(launched(engine, "train", "--resume", run, "--stop-at", 1000, "--quiet"))
    assert more[0][0] == 0, more


@thorough
@pytest.mark.parametrize("engine", ["jax", "tensorflow"])
def test_rank_0_that_is_killed_leaves_no_process(engine: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    processes = launched(engine, *WORDS, "--steps", 200_000, "--out", run)
    under_way(processes, run)
    processes[0].kill()
    assert ended(processes)[1][0] != 0


def test_processes_that_do_not_meet_end() -> None:
    alone = (
        "import time; from tandem.learning.hosts import in_time\n"
        "with in_time(0.1, ['TF_CONFIG']): pass\n"
        "time.sleep(0.3)\n"
        "with in_time(0.5, ['TF_CONFIG']): time.sleep(30)"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    command = [sys.executable, "-c", alone]
    ended = subprocess.run(command, capture_output=True, text=True, env=env, timeout=25)
    assert ended.returncode == 2
    assert ended.stderr.startswith("tandem: the processes that were launched do not meet within")
