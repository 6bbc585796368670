"""Reading run folders, and what is said of folders that are none."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tandem.errors import RunFolderError
from tandem.runs.folder import read_run
from tandem.runs.writers import CsvWriter


def make(folder: Path, rows: int = 2) -> Path:
    writer = CsvWriter(folder / "progress.csv", columns=("env_steps", "eval_mean"))
    for i in range(rows):
        writer.write({"env_steps": 100 * (i + 1), "eval_mean": None if i == 0 else 0.1})
    writer.close()
    (folder / "config.json").write_text(json.dumps({"algorithm": "ppo", "seed": 3}))
    return folder


def test_a_run_comes_back(tmp_path: Path) -> None:
    run = read_run(make(tmp_path / "run"))
    assert run.config == {"algorithm": "ppo", "seed": 3}
    np.testing.assert_array_equal(run.column("env_steps"), [100.0, 200.0])
    np.testing.assert_array_equal(run.column("eval_mean"), [np.nan, 0.1])
    np.testing.assert_array_equal(run.column("return_mean"), [np.nan, np.nan])


def test_a_missing_folder_is_answered_with_the_nearest_runs(tmp_path: Path) -> None:
    make(tmp_path / "cartpole-ppo-0")
    make(tmp_path / "lunar-dqn-1")
    (tmp_path / "cartpole-notes").mkdir()
    with pytest.raises(RunFolderError, match=r"there is no folder .*cartpole-pp0-0") as error:
        read_run(tmp_path / "cartpole-pp0-0")
    assert error.value.fix == f"did you mean {tmp_path / 'cartpole-ppo-0'}?"
    with pytest.raises(RunFolderError, match="tandem train"):
        read_run(tmp_path / "nowhere" / "at-all")


def test_the_folder_of_runs_is_answered_with_the_runs_in_it(tmp_path: Path) -> None:
    make(tmp_path / "a")
    make(tmp_path / "b")
    with pytest.raises(RunFolderError, match=r"is not a run: it has no config\.json") as error:
        read_run(tmp_path)
    assert str(tmp_path / "a") in error.value.fix and str(tmp_path / "b") in error.value.fix


def test_empty_and_foreign_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="has no progress yet"):
        read_run(make(tmp_path / "empty", rows=0))
    run = make(tmp_path / "run")
    for text in ("{", "[1]"):
        (run / "config.json").write_text(text)
        with pytest.raises(RunFolderError, match=r"config\.json"):
            read_run(run)
    (run / "progress.csv").unlink()
    with pytest.raises(RunFolderError, match=r"it has no progress\.csv"):
        read_run(run)
