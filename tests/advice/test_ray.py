"""The advice about a cluster of Ray that was left, or that is not there."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from tandem import trainer
from tandem.learning.events import BatchEnd
from tandem.workers.ray import connect
from tests.advice.net import follows
from tests.advice.worlds import SHORT
from tests.helpers import ROOT

ray = pytest.importorskip("ray")
LOCAL = {"include_dashboard": False, "logging_level": "ERROR", "log_to_driver": False}


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_runs_whose_cluster_was_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No call makes Ray start a new cluster, not even those that close what is left."""
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}:{ROOT}")
    ray.init("local", num_cpus=1, **LOCAL)
    try:
        given = {**SHORT, "steps": 64, "rollout": 8, "envs": 2, "runners": 1, "runner_cpus": 0.4}
        run = trainer.session("a2c", "CartPole-v1", out=tmp_path / "run", save_every=16, **given)
        abandoned = trainer.session("a2c", "CartPole-v1", **given)
        events = iter(run)
        next(event for event in events if isinstance(event, BatchEnd) and event.env_steps >= 32)
        ray.shutdown()
        with follows("workers/ray.py:check_joined") as advice:
            list(events)
        del abandoned
        gc.collect()
        assert not ray.is_initialized()
        assert "tandem.train(resume=...)" in advice.fix
        with follows("workers/ray.py:connect 3") as advice:
            connect("127.0.0.1:1")
        ray.init("local", num_cpus=1, **LOCAL)
        assert trainer.train(resume=tmp_path / "run").reason == "steps"
    finally:
        ray.shutdown()
    start = pytest.importorskip("ray.scripts.scripts").start
    assert "`ray start --head --port=6379`" in advice.fix
    assert {"head", "port"} <= {option.name for option in start.params}
