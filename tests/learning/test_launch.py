"""Runs whose processes were launched together, as torchrun does, and the processes that torch's
devices are: what happens if one is lost, and that none is left."""

import json
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

from tandem.runs.folder import Run
from tests.helpers import ROOT, _environment, run_python
from tests.parallel.processes import gone
from tests.runs.shared import wait_for

pytest.importorskip("torch")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(200)]
thorough = pytest.mark.thorough
WORDS = shlex.split(
    "train dqn CartPole-v1 --learning-starts 100 --batch-size 32 --hidden 16 --eval-every 800 "
    "--eval-episodes 1 --final-episodes 1 --no-plots --no-tensorboard --quiet --log-every 100"
)
CASES = Path(__file__).parent / "companion_cases.py"
posix = pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="looks into /proc")
THOROUGH = ("still", "raised", "callback", "unfit", "own")


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
    assert Run(run).table["fingerprint"] == Run(alone).table["fingerprint"]
    more = ended(launched("train", "--resume", run, "--steps", 2400, "--extend", "--quiet"))
    assert [code for code, *_ in more] == [0, 0], more
    assert int(Run(run).table["env_steps"][-1]) >= 2400


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


# Companions: the other processes of devices=2


@posix
@pytest.mark.parametrize("case", ["killed", *(pytest.param(c, marks=thorough) for c in THOROUGH)])
def test_what_goes_wrong_is_named_and_leaves_no_process(case: str, tmp_path: Path) -> None:
    run_python(CASES, case, str(tmp_path), engine="torch")


@posix
@pytest.mark.parametrize(
    "number",
    [signal.SIGKILL, *(pytest.param(n, marks=thorough) for n in (signal.SIGINT, signal.SIGTERM))],
)
def test_they_end_with_the_run(number: int, tmp_path: Path) -> None:
    """SIGKILL is sent to the run's process alone, the others to all, as a terminal does."""
    command, pipe = [sys.executable, str(CASES), "waiting", str(tmp_path)], subprocess.PIPE
    own = {"cwd": ROOT, "env": _environment("torch", {}), "start_new_session": True}
    child: Any = subprocess.Popen(command, stdout=pipe, text=True, **own)
    (companion,) = json.loads(child.stdout.readline())
    while not (tmp_path / "run" / "checkpoints" / "last.zip").is_file():
        time.sleep(0.05)
    time.sleep(0.5)
    if number == signal.SIGKILL:
        child.kill()
    else:
        os.killpg(child.pid, number)
    code = child.wait(30)
    assert gone([companion], 10), "a companion outlived its run"
    assert code == -number
    child.stdout.close()
