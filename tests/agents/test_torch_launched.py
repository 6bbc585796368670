"""Agents of PyTorch in a program that torchrun has started as two processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import ROOT
from tests.learning.test_launch import ended, free_port

pytest.importorskip("torch")
pytestmark = [pytest.mark.slow, pytest.mark.thorough, pytest.mark.timeout(300)]
SNIPPET = Path(__file__).parent / "snippets" / "torch_launched.py"


def launched(case: str, folder: Path) -> list[tuple[int, Any]]:
    """The exit code of each of two processes, and what it found."""
    told = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    processes = [
        subprocess.Popen(
            [sys.executable, str(SNIPPET), case, str(folder)],
            env={**os.environ, **told, "RANK": str(rank), "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    found = ended(processes)
    lines = [said.strip().splitlines() for _, said, _ in found]
    return [(x[0], json.loads(y[-1]) if y else x[2]) for x, y in zip(found, lines, strict=True)]


def test_all_have_the_agent_that_one_process_would_have(tmp_path: Path) -> None:
    from tests.agents.test_torch_devices import made, tensors, train

    (code, one), (other_code, other) = launched("follows", tmp_path)
    assert (code, other_code) == (0, 0), (one, other)
    assert one["weights"] == other["weights"] and one["first"] == other["first"] != [0.0]
    assert one["resumed"] == other["resumed"] == one["weights"]
    assert len(one["losses"]) == 6 and other["losses"] == []  # the first one collects
    alone = train(train(made(), 4, 1), 2, 1)
    assert one["losses"] == pytest.approx(list(alone.loss_list), rel=1e-5, abs=1e-6)
    sums = [float(x.double().sum()) for x in tensors(alone)]
    assert one["weights"] == pytest.approx(sums, rel=1e-4, abs=1e-4)


def test_one_that_is_lost_is_named(tmp_path: Path) -> None:
    (code, one), (other_code, _) = launched("dies", tmp_path)
    assert (code, other_code) == (0, 7), one
    assert one.startswith("WorkerError: the process of rank 1, of 2 that were launched, has died")
    assert "start all of them again, with agent.restore" in one
    (_, one), (_, other) = launched("raises", tmp_path)
    assert one == "OSError: mine"
    assert other.startswith("WorkerError: the process of rank 0, of 2 that were launched, has end")
