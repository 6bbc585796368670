"""Runs whose processes were launched together, as torchrun does."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tandem.runs.folder import read_run
from tests.helpers import ROOT
from tests.runs.shared import wait_for

pytest.importorskip("torch")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(200)]
thorough = pytest.mark.thorough
WORDS = shlex.split(
    "train dqn CartPole-v1 --learning-starts 100 --batch-size 32 --hidden 16 --eval-every 800 "
    "--eval-episodes 1 --final-episodes 1 --no-plots --no-tensorboard --quiet --log-every 100"
)


def free_port() -> str:
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return str(found.getsockname()[1])


def launched(*words: Any, count: int = 2) -> list[subprocess.Popen[str]]:
    """Processes of the command, with what torchrun tells each of them."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    command, port, each = [sys.executable, "-m", "tandem", *map(str, words)], free_port(), []
    for rank in range(count):
        told = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
        told |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "PYTHONPATH": path}
        env, pipe = {**os.environ, **{n: str(x) for n, x in told.items()}}, subprocess.PIPE
        each.append(subprocess.Popen(command, env=env, stdout=pipe, stderr=pipe, text=True))
    return each


def ended(processes: list[subprocess.Popen[str]]) -> list[tuple[int, str, str]]:
    try:
        said = [process.communicate(timeout=150) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [(p.returncode, *x) for p, x in zip(processes, said, strict=True)]


def test_it_is_the_run_of_as_many_devices(tmp_path: Path) -> None:
    run, alone = tmp_path / "run", tmp_path / "alone"
    (code, said, told), other = ended(launched(*WORDS, "--steps", 1600, "--out", run))
    assert code == 0, told
    assert other[:2] == (0, "") and f"tandem evaluate {run}" in said
    command = [sys.executable, "-m", "tandem", *WORDS, "--steps", "1600", "--out", str(alone)]
    command += ["--framework", "torch", "--devices", "2"]
    subprocess.run(command, check=True, capture_output=True)
    assert read_run(run).table["fingerprint"] == read_run(alone).table["fingerprint"]
    more = ended(launched("train", "--resume", run, "--steps", 2400, "--extend", "--quiet"))
    assert [code for code, *_ in more] == [0, 0], more
    assert int(read_run(run).table["env_steps"][-1]) >= 2400


@thorough
def test_a_process_that_is_killed_is_named(tmp_path: Path) -> None:
    run = tmp_path / "run"
    processes = launched(*WORDS, "--steps", 200_000, "--out", run)
    wait_for(processes[0], run / "progress.csv", 3)
    os.kill(processes[1].pid, signal.SIGKILL)
    began = time.monotonic()
    (code, _, told), _ = ended(processes)
    assert time.monotonic() - began < 15
    assert code != 0 and "the process of rank 1, of 2 that were launched, has died" in told
    more = ended(launched("train", "--resume", run, "--stop-at", 1000, "--quiet"))
    assert more[0][0] == 0, more
