"""Runs in Python: `tandem.Run`, `tandem.find_runs`, and what callbacks find of their run."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tandem
from tandem.errors import EngineError, RunFolderError, SettingError, UnknownNameError
from tandem.runs.callbacks import Callback
from tests.advice.worlds import without
from tests.runs.shared import QUICK

GIVEN = {**QUICK, "steps": 64, "rollout": 8, "envs": 2, "eval_every": 32}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for seed in (1, 0):
        out = folder / f"a{seed}"
        result = tandem.train("ppo", "CartPole-v1", seed=seed, out=out, **GIVEN)
        assert result.run.evaluations == result.evaluations
    tandem.train("a2c", "CartPole-v1", out=folder / "seeds" / "s0", learning_rate="1e-3:0", **GIVEN)
    return folder


def test_a_run_is_read(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tandem.Run(runs / "a1")
    assert (run.config["seed"], run.settings["rollout"], run.settings["envs"]) == (1, 8, 2)
    rows = run.rows()
    assert rows["env_steps"].tolist() == sorted(rows["env_steps"]) and rows["env_steps"][-1] == 64
    assert len(rows["fingerprint"][0]) == 16 and np.isnan(rows["eval_mean"]).sum() > 0
    assert [n for n, *_ in run.evaluations] == [32, 64]
    assert run.result["eval_mean"] == tandem.Run(runs / "a1").result["eval_mean"]
    weights = run.agent("last").networks["actor"].weights
    assert all(np.array_equal(x, weights[n]) for n, x in weights.items())
    assert repr(run).endswith("a1: ppo CartPole-v1, seed 1, 64 steps)")
    with without(monkeypatch, "pandas"), pytest.raises(EngineError, match="Run.rows"):
        run.frame()
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=lambda x: ("frame", x)))
    kind, held = run.frame()
    assert kind == "frame" and (held["algorithm"], held["seed"]) == ("ppo", 1)
    assert held["folder"] == str(runs / "a1")
    assert held["env_steps"].tolist() == rows["env_steps"].tolist()


def test_runs_are_found_by_what_they_were_given(runs: Path) -> None:
    def names(**wanted: Any) -> list[str]:
        return [run.folder.name for run in tandem.find_runs(runs, **wanted)]

    assert names() == ["a1", "a0", "s0"] and names(algorithm="ppo") == ["a1", "a0"]
    assert names(algorithm="ppo", seed=0) == ["a0"] and names(learning_rate="1e-3:0") == ["s0"]
    assert names(hidden=(8,), rollout=8) == ["a1", "a0", "s0"] and names(hidden=(9,)) == []
    with pytest.raises(UnknownNameError, match="algorithm"):
        names(algoritm="ppo")
    with pytest.raises(RunFolderError, match="no folder"):
        tandem.find_runs(runs / "none")


def test_callbacks_find_their_run(tmp_path: Path) -> None:
    seen: list[Any] = []

    class Reader(Callback):
        def on_evaluation(self, event: Any) -> None:
            session = self.session
            seen.append((session.folder, session.settings.rollout, session.environments.n))
            assert session.agent().act(np.zeros(4, np.float32)) in (0, 1)

    def function(event: Any, session: Any) -> bool:
        seen.append(session)
        return session.loop.env_steps >= 48

    out = tmp_path / "run"
    result = tandem.train("ppo", "CartPole-v1", out=out, callbacks=[Reader(), function], **GIVEN)
    assert (out, 8, 2) in seen and result.reason == "callback"
    assert seen[0].folder == out
    with pytest.raises(SettingError, match="takes no event"):
        tandem.train("ppo", "CartPole-v1", callbacks=[lambda a, b, c: None], **GIVEN)
