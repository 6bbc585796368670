"""Reading run folders, and what is said of folders that are none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tandem
from tandem.cli import main
from tandem.errors import ResumeError, RunFolderError
from tandem.runs.folder import default_folder, drop_unused, read_run, runs_in
from tandem.runs.writers import CsvWriter
from tests.advice.net import follows
from tests.helpers import held
from tests.runs.shared import QUICK, finished


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
    with pytest.raises(RunFolderError, match=r"is not a run: it has no config\.json") as error:
        read_run(tmp_path)  # the folder of runs
    assert all(str(tmp_path / n) in error.value.fix for n in ("cartpole-ppo-0", "lunar-dqn-1"))


def test_a_folder_stands_for_the_runs_in_it_and_in_its_folders_of_seeds(tmp_path: Path) -> None:
    one, s0, s1 = tmp_path / "one", tmp_path / "seeds" / "s0", tmp_path / "seeds" / "s1"
    for run in (s1, one, s0, one / "kept"):  # a copy within a run is none of its own
        run.mkdir(parents=True, exist_ok=True)
        make(run)
    assert runs_in(tmp_path) == [one, s0, s1] and runs_in(one) == [one]


def test_two_commands_of_one_second_have_folders_of_their_own(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = [default_folder("ppo", "a/b:c", 0) for _ in range(3)]
    assert len(set(made)) == 3 and all(folder.is_dir() for folder in made)
    make(made[1])
    drop_unused()
    assert [folder for folder in made if folder.exists()] == [made[1]]
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    default_folder("ppo", "a", 0)
    drop_unused()
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("what", ["file", "link"])
def test_what_is_no_folder_of_runs_is_left_to_whoever_writes_there(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if what == "file":
        Path("runs").touch()
    else:
        try:
            Path("runs").symlink_to(tmp_path / "a disk that is not there")
        except OSError:
            pytest.skip("no links here")
    tries, mkdir = iter(range(9)), Path.mkdir

    def counted(self: Path, *args: Any, **more: Any) -> None:
        next(tries)
        mkdir(self, *args, **more)

    monkeypatch.setattr(Path, "mkdir", counted)
    assert default_folder("ppo", "a", 0).parent == Path("runs")


def test_a_folder_in_which_another_run_has_begun_meanwhile_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    given = QUICK | {"steps": 64, "envs": 2, "rollout": 8}
    first, second = (
        tandem.session("a2c", "CartPole-v1", out=tmp_path / "run", gamma=gamma, **given)
        for gamma in (0.9, 0.5)
    )
    list(first)
    before = (tmp_path / "run" / "config.json").read_bytes()
    with pytest.raises(RunFolderError, match="exists and is not empty"):
        next(iter(second))
    assert (tmp_path / "run" / "config.json").read_bytes() == before
    live = pytest.raises(ResumeError, match=r"another process[^\0]*tandem watch --live")
    with held(tmp_path / "run" / ".lock"), live:
        tandem.train(resume=tmp_path / "run")
    tandem.train(resume=tmp_path / "run")


@pytest.mark.parametrize(
    ("name", "text"),
    [("config.json", '{"model": 1}'), ("progress.csv", "env_steps\n64\n"), ("notes.txt", "")],
)
def test_a_folder_with_something_to_lose_is_refused(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"signature": ""}')  # as a kill leaves it, until here
    (tmp_path / name).write_text(text)
    with pytest.raises(RunFolderError, match="exists and is not empty"):
        tandem.session("a2c", "CartPole-v1", out=tmp_path, **QUICK)
    assert (tmp_path / name).read_text() == text


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


def test_config_tells_of_the_optimizer_and_the_device_that_are_used(tmp_path: Path) -> None:
    import torch

    def optimizer() -> Any:
        return torch.optim.SGD([torch.zeros(1)], lr=0.01, momentum=0.9)

    given = QUICK | {"steps": 512, "eval_episodes": 0, "out": tmp_path / "run"}
    run = tandem.session("ppo", "CartPole-v1", optimizer=optimizer(), **given)
    finished(run, 256)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["optimizer_class"] == "SGD" and config["own_optimizer"]
    odd = {"optimizer", "learning_rate", "adam_epsilon", "rms_decay"} & config["settings"].keys()
    assert not odd and config["settings"]["gamma"] == 0.98
    assert (config["device"], config["device_used"]) == ("auto", run.backend.device)


def test_a_run_whose_files_name_two_environments_is_refused(tmp_path, capsys) -> None:
    """A checkpoint names the environment that is made; people look at config.json."""
    run = tmp_path / "run"
    tandem.train("a2c", "CartPole-v1", out=run, **QUICK | {"steps": 32, "envs": 1, "rollout": 16})
    file = run / "config.json"
    original = file.read_text(encoding="utf-8")
    for changed in ({"env": "Acrobot-v1"}, {"env_kwargs": {"render_mode": "ansi"}}):
        file.write_text(json.dumps(json.loads(original) | changed), encoding="utf-8")
        with follows("runs/config_file.py:refuse_other_env") as advice:
            tandem.train(resume=run, steps=64, extend=True)
        assert "change it back" in advice.fix
        for command in ("evaluate", "watch"):
            assert main([command, str(run), "--episodes", "1"]) == 1
            (name,) = changed
            assert f"has {name}=" in capsys.readouterr().err
    file.write_text(original, encoding="utf-8")
    assert main(["evaluate", str(run), "--episodes", "1"]) == 0
    tandem.train(resume=run, steps=64, extend=True)


def test_a_sweep_is_told_from_a_run(tmp_path) -> None:
    (tmp_path / "sweep.json").write_text("{}")
    with follows("runs/folder.py:run_folder 2") as advice:
        tandem.train(resume=tmp_path)
    assert f"tandem sweep --resume {tmp_path}" in advice.fix
