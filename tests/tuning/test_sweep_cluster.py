"""Trials that actors on a Ray cluster make: the same as those that processes make."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tandem
from tandem.tuning import sweep as sweeps
from tandem.workers.jobs import RayActors
from tests.advice.net import follows
from tests.helpers import own_cluster
from tests.tuning.test_sweep import GAMES, SMALL, _plain

pytest.importorskip("ray")
pytest.importorskip("optuna")
pytest.importorskip("torch")
pytestmark = pytest.mark.slow
GIVEN: dict[str, Any] = {**SMALL, "steps": 600, "trials": 2, "sampler": "random"}
GIVEN["checkpoint_seconds"] = 0


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    yield from own_cluster(2)


def test_trials_are_those_of_processes_and_go_on_anywhere(tmp_path: Path) -> None:
    here = tandem.sweep(*GAMES, **GIVEN, parallel=1, out=tmp_path / "here")
    there = tandem.sweep(*GAMES, **GIVEN, cluster="auto", parallel=1, out=tmp_path / "there")
    assert list(map(_plain, here.trials)) == list(map(_plain, there.trials))

    def stop(number: int, evaluations: int, mean: float) -> None:
        if (number, evaluations) == (1, 3):
            os.kill(os.getpid(), signal.SIGTERM)

    cut = tmp_path / "cut"
    made = sweeps.Sweep(*GAMES, **GIVEN, cluster="auto", parallel=1, out=cut, heard=stop)
    assert made.train() == "SIGTERM"
    assert (cut / "trials" / "0001" / "checkpoints" / "last.zip").is_file()
    left = sweeps.Sweep(resume=cut, cluster="auto", trials=2)
    assert left.train() is None and left.parallel == 2
    again = left.result()
    assert [_plain(t) for t in again.trials] == [_plain(t) for t in there.trials]


def test_a_folder_that_is_not_here_is_named(tmp_path: Path) -> None:
    assert [RayActors("auto", n, list).room for n in (1, 2, 3)] == [2, 1, 1]
    sweeps.expect_here(tmp_path)
    with follows("tuning/sweep.py:expect_here") as advice:
        sweeps.expect_here(tmp_path / "elsewhere")
    assert "give out=" in advice.fix and "leave cluster out" in advice.fix
