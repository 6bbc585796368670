"""Whole runs are the same on any POSIX system; parts are in test_process.py, test_arrays.py."""

from __future__ import annotations

import pytest

import tandem
from tandem.platforms import POSIX, VARIABLE
from tandem.runs.folder import read_run
from tandem.testing import environments as games

SMALL = dict(framework="torch", device="cpu", eval_episodes=0, final_episodes=1, hidden=(8,))
SMALL |= {"plots": False, "tensorboard": False}
LOCK_STEP = dict(envs=4, rollout=8, batch_size=16, steps=128, log_every=64, workers=2)
AHEAD = dict(envs=2, steps=96, log_every=48, learning_starts=16, workers=2)
SHARED_REPLAY = dict(envs=1, rollout=8, steps=256, log_every=64, learners=2, staleness=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "algorithm, env, settings",
    [
        ("ppo", games.IdentityDict, LOCK_STEP),
        ("dqn", games.Chain, AHEAD),
        ("acer", games.Chain, SHARED_REPLAY),
    ],
)
def test_a_run_is_that_of_the_first_ways(algorithm, env, settings, monkeypatch, tmp_path) -> None:
    found = {}
    for system in ("", POSIX):
        monkeypatch.setenv(VARIABLE, system)
        tandem.train(algorithm, env, out=tmp_path / f"on{system}", **SMALL, **settings)
        found[system] = read_run(tmp_path / f"on{system}").table["fingerprint"]
    assert found[""] == found[POSIX]
