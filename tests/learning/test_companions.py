"""The processes that torch's devices are: what happens if one is lost, and that none is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import ROOT, _environment, run_python
from tests.parallel.processes import gone

CASES = Path(__file__).parent / "companion_cases.py"
posix = pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="looks into /proc")
thorough = pytest.mark.thorough
pytestmark = [pytest.mark.slow, posix]


def of(case: str, folder: Path) -> Any:
    pytest.importorskip("torch")
    (found,) = run_python(CASES, case, str(folder), engine="torch")
    return found


def test_one_that_is_killed(tmp_path: Path) -> None:
    found = of("killed", tmp_path)
    assert found["error"].startswith(
        "the process of rank 1, of devices=2, was killed (SIGKILL), possibly for lack "
        "of memory; expected processes that run until the end"
    ), found["error"]
    assert "Fix: continue from the run's last checkpoint with resume=" in found["error"]
    assert found["seconds"] < 10 and not found["left"]
    assert found["steps"] >= 304
    assert found["prints"] == found["whole"], "resumed after the loss, the run was another"


@thorough
def test_one_that_stands_still(tmp_path: Path) -> None:
    found = of("still", tmp_path)
    said = "rank 1, of devices=2, did not respond: it did not reach an all-reduce within 5 s"
    assert said in found["error"]
    assert "device_timeout=10" in found["error"]
    assert 5 <= found["seconds"] < 15 and not found["left"]
    assert found["steps"] >= 304


@thorough
def test_one_that_raises(tmp_path: Path) -> None:
    found = of("raised", tmp_path)
    said = "rank 1, of devices=2, raised OSError: the device has fallen off the bus"
    assert said in found["error"]
    assert "Falling" in found["error"] or "forward" in found["error"], "no traceback"
    assert "Fix: fix the code that raised" in found["error"] and not found["left"]


@thorough
def test_a_callback_that_raises_leaves_no_process(tmp_path: Path) -> None:
    assert of("callback", tmp_path) == {"said": "of the callback", "left": []}


@thorough
def test_what_cannot_begin_leaves_no_process(tmp_path: Path) -> None:
    found = of("unfit", tmp_path)
    assert "cannot be pickled" in found["errors"][0]
    assert "use batch_size=32" in found["errors"][1] and not found["left"]


@thorough
def test_a_network_of_ones_own_with_dropout_and_workers(tmp_path: Path) -> None:
    found = of("own", tmp_path)
    assert len(found["whole"]) >= 5 and found["parts"] == found["whole"]
    assert not found["left"]


BOTH = (signal.SIGINT, signal.SIGTERM)


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, *(pytest.param(n, marks=thorough) for n in BOTH)]
)
def test_they_end_with_the_run(number: int, tmp_path: Path) -> None:
    """SIGKILL is sent to the run's process alone, the others to all, as a terminal does."""
    pytest.importorskip("torch")
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
