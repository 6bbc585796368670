"""What runs on Linux runs on any POSIX system: whole runs are the same. Processes and what they
share are in test_process.py and test_arrays.py, on both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tandem
from tandem.platforms import POSIX, VARIABLE
from tandem.runs.folder import read_run
from tandem.testing import environments as games

SMALL = dict(framework="torch", device="cpu", eval_episodes=0, final_episodes=1, hidden=(8,))
SMALL |= {"plots": False, "tensorboard": False}
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
