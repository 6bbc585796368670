"""Which folder a run is in, who is at work there, how a command names it, and how it is read."""

import json
import os
import shlex
import signal
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

import tandem
from tandem.cli import main
from tandem.drlbox.makers import make_trainer
from tandem.errors import ResumeError, RunFolderError
from tandem.reports.animation import film
from tandem.runs.folder import Run, runs_in
from tandem.runs.new_folders import default_folder, drop_unused
from tandem.runs.writers import CsvWriter
from tandem.testing.environments import TerminatedTruncatedPair
from tests.advice.net import follows
from tests.agents.agents import Probe, trained
from tests.helpers import ROOT, held
from tests.runs.shared import QUICK, child, finished

SMALL = QUICK | {"steps": 64, "envs": 2, "rollout": 8}
FLAGS = "--framework torch --steps 64 --envs 2 --rollout 8 --hidden 8 --no-plots --no-tensorboard"
FLAGS += " --eval-episodes 1 --final-episodes 1 --quiet"
# resumes a run, and waits where its environment is made: before it has written anything
WAITING = """
import sys, gymnasium, tandem
def make():
    print("there", flush=True)
    sys.stdin.read()
    return gymnasium.make("CartPole-v1")
tandem.train(resume=sys.argv[1], env=make)
"""


@pytest.fixture
def half(tmp_path: Path) -> Path:
    """A run, the half of it, in an environment that a program gives."""
    tandem.train("a2c", cart, out=tmp_path / "run", stop_at=32, **SMALL)
    return tmp_path / "run"


def cart() -> Any:
    return gymnasium.make("CartPole-v1")


@pytest.fixture
def other(half: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has begun to resume it."""
    with child("-c", WAITING, str(half)) as process:
        assert process.stdout is not None and process.stdout.readline() == "there\n"
        yield process
        process.kill()


def test_who_resumes_a_run_second_is_refused_before_the_first_has_written(half, other, capsys):
    table = (half / "progress.csv").read_bytes()
    with pytest.raises(ResumeError, match=rf"another process \(process {other.pid} on ") as caught:
        tandem.train(resume=half, env=cart)
    assert f"tandem watch --live {half} shows it" in caught.value.fix
    assert main(["train", "--resume", str(half)]) == 2
    assert f"(process {other.pid} on " in capsys.readouterr().err
    assert (half / "progress.csv").read_bytes() == table
    other.send_signal(signal.SIGKILL)
    other.wait()
    assert tandem.train(resume=half, env=cart).summary["env_steps"] == 64


def test_a_session_that_could_not_be_made_keeps_no_folder(half: Path) -> None:
    with pytest.raises(ResumeError, match="leave steps out") as caught:
        tandem.session(resume=half, env=cart, steps=32)
    code = "import sys, tandem, gymnasium; from tests.runs.test_folders import cart\n"
    code += "print(tandem.train(resume=sys.argv[1], env=cart).summary['env_steps'])"
    out, err = child("-c", code, str(half)).communicate()
    assert caught.value.__traceback__ is not None  # which has the frames that asked for it
    assert out.split()[-1:] == ["64"], err


@pytest.mark.parametrize("place", ["checkpoints/last.zip", "checkpoints", "checkpoints/"])
def test_a_run_is_resumed_by_the_path_of_its_last_checkpoint_too(half, place, capsys) -> None:
    result = tandem.train(resume=f"{half}/{place}", env=cart)
    assert result.folder == half and result.summary["env_steps"] == 64


def test_an_agents_checkpoint_is_answered_with_the_folder_of_its_run(half, monkeypatch, capsys):
    monkeypatch.chdir(half.parent)
    with pytest.raises(RunFolderError, match="an agent, not a whole run") as caught:
        tandem.train(resume="run/checkpoints/best.zip", env=cart)
    assert caught.value.fix == f"give {half}."
    assert main(["train", "--resume", "run/checkpoints/best.zip"]) == 2
    assert f"Fix: give {half}." in capsys.readouterr().err


# Reading a folder, and what is said of one that is no run


def make(folder: Path, rows: int = 2) -> Path:
    writer = CsvWriter(folder / "progress.csv", columns=("env_steps", "eval_mean"))
    for i in range(rows):
        writer.write({"env_steps": 100 * (i + 1), "eval_mean": None if i == 0 else 0.1})
    writer.close()
    (folder / "config.json").write_text(json.dumps({"algorithm": "ppo", "seed": 3}))
    return folder


def test_what_is_no_run_is_named_and_answered_with_the_nearest(tmp_path) -> None:
    make(tmp_path / "cartpole-ppo-0")
    make(tmp_path / "lunar-dqn-1")
    (tmp_path / "cartpole-notes").mkdir()
    with pytest.raises(RunFolderError, match=r"there is no folder .*cartpole-pp0-0") as error:
        Run(tmp_path / "cartpole-pp0-0")
    assert error.value.fix == f"did you mean {tmp_path / 'cartpole-ppo-0'}?"
    with pytest.raises(RunFolderError, match="tandem train"):
        Run(tmp_path / "nowhere" / "at-all")
    with pytest.raises(RunFolderError, match=r"is not a run: it has no config\.json") as error:
        Run(tmp_path)  # the folder of runs
    assert all(str(tmp_path / n) in error.value.fix for n in ("cartpole-ppo-0", "lunar-dqn-1"))
    with pytest.raises(RunFolderError, match="has no progress yet"):
        Run(make(tmp_path / "empty", rows=0))
    run = make(tmp_path / "run")
    for text in ("{", "[1]"):
        (run / "config.json").write_text(text)
        with pytest.raises(RunFolderError, match=r"config\.json"):
            Run(run)
    (run / "progress.csv").unlink()
    with pytest.raises(RunFolderError, match=r"it has no progress\.csv"):
        Run(run)
    (tmp_path / "sweep.json").write_text("{}")
    with follows("runs/folder.py:run_folder 2") as advice:
        tandem.train(resume=tmp_path)
    assert f"tandem sweep --resume {tmp_path}" in advice.fix


def test_runs_are_found_in_folders_and_come_back(tmp_path) -> None:
    one, s0, s1 = tmp_path / "one", tmp_path / "seeds" / "s0", tmp_path / "seeds" / "s1"
    for run in (s1, one, s0, one / "kept"):  # a copy within a run is none of its own
        run.mkdir(parents=True, exist_ok=True)
        make(run)
    assert runs_in(tmp_path) == [one, s0, s1] and runs_in(one) == [one]
    run = Run(make(tmp_path / "run"))
    assert run.config == {"algorithm": "ppo", "seed": 3}
    np.testing.assert_array_equal(run.column("env_steps"), [100.0, 200.0])
    np.testing.assert_array_equal(run.column("eval_mean"), [np.nan, 0.1])
    np.testing.assert_array_equal(run.column("return_mean"), [np.nan, np.nan])


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
def test_what_is_no_folder_of_runs_is_left_to_whoever_writes_there(what, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if what == "file":
        Path("runs").touch()
    else:
        Path("runs").symlink_to(tmp_path / "a disk that is not there")
    tries, mkdir = iter(range(9)), Path.mkdir

    def counted(self: Path, *args: Any, **more: Any) -> None:
        next(tries)
        mkdir(self, *args, **more)

    monkeypatch.setattr(Path, "mkdir", counted)
    assert default_folder("ppo", "a", 0).parent == Path("runs")


def test_a_folder_in_which_another_run_has_begun_meanwhile_is_refused(tmp_path: Path) -> None:
    run = tmp_path / "run"
    begun = partial(tandem.session, "a2c", "CartPole-v1", out=run, **SMALL)
    first, second = begun(gamma=0.9), begun(gamma=0.5)
    list(first)
    before = (run / "config.json").read_bytes()
    with pytest.raises(RunFolderError, match="exists and is not empty"):
        next(iter(second))
    assert (run / "config.json").read_bytes() == before
    live = pytest.raises(ResumeError, match=r"another process[^\0]*tandem watch --live")
    with held(run / ".lock"), live:
        tandem.train(resume=run)
    tandem.train(resume=run)


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


def test_config_tells_of_the_optimizer_and_the_device_that_are_used(tmp_path: Path) -> None:
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.01, momentum=0.9)
    given = QUICK | {"steps": 512, "eval_episodes": 0, "out": tmp_path / "run"}
    run = tandem.session("ppo", "CartPole-v1", optimizer=optimizer, **given)
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


# Commands and working directories


@pytest.mark.slow
def test_printed_commands_take_folders_that_look_like_flags(tmp_path, monkeypatch, capfd) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    train = ["train", "a2c", "CartPole-v1", *FLAGS.split()]

    def printed() -> list[list[str]]:
        lines = [line.strip() for line in capfd.readouterr().out.splitlines()]
        return [shlex.split(line)[1:] for line in lines if line.startswith("tandem ")]

    assert main([*train, "--out=-a run"]) == 0
    watch, *commands = printed()
    assert [watch[0], *(words[0] for words in commands)] == ["watch", "evaluate", "train"]
    for words in commands:
        assert main(["1" if word == "100" else word for word in words]) == 0, words  # episodes
    capfd.readouterr()
    assert main([*train, "--out=-several", "--seeds", "1"]) == 0
    report, plot = printed()
    assert main(report) == main(plot) == 0
    (result := Path("-several") / "s0" / "result.json").unlink()
    assert main(["train", "--resume=-several", "--quiet"]) == 0
    assert result.is_file()
    assert main(["config", "a2c", "CartPole-v1", "--out=-c.toml", "--framework", "torch"]) == 0
    assert "--config ./-c.toml" in capfd.readouterr().out


# An environment that changes the working directory

MOVING = SMALL | {"rollout": 16, "batch_size": 16, "epochs": 1, "tensorboard": True}


class Moves(TerminatedTruncatedPair):
    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}
    render_mode = "rgb_array"
    away = ""

    def __init__(self) -> None:
        super().__init__()
        os.chdir(self.away)

    def reset(self, **given: Any) -> Any:
        os.chdir(self.away)
        return super().reset(**given)

    def render(self) -> Any:
        return np.zeros((8, 8, 3), np.uint8)


def by_trainer() -> None:
    here = Path.cwd()
    tandem.train("ppo", Moves, out="run", stop_at=32, **MOVING)
    os.chdir(here)
    result = tandem.train(env=Moves, resume="run")
    assert result.folder == here / "run" and result.summary["env_steps"] == 64


def by_agent() -> None:
    agent = Probe(Moves())
    os.chdir(Path(Moves.away).parent / "here")
    agent.path, agent.save_freq = "run/agent.dat", 1
    for _ in range(2):
        trained(agent, 2)


def by_film() -> None:
    film(lambda obs: 0, Moves, Path("run/play.gif"))


def by_drlbox() -> None:
    given: dict[str, Any] = {"framework": "torch", "steps": 32, "envs": 2, "rollout": 8}
    given |= {"env_maker": Moves, "save_dir": "run", "state_to_input": lambda state: state}
    make_trainer("a2c", **given).run()


@pytest.mark.parametrize("door", [by_trainer, by_agent, by_film, by_drlbox])
def test_files_of_a_run_stay_where_they_were_to_be(door, tmp_path, monkeypatch) -> None:
    (here := tmp_path / "here").mkdir()
    (away := tmp_path / "away").mkdir()
    monkeypatch.setattr(Moves, "away", str(away))
    monkeypatch.chdir(here)
    door()
    assert [f.name for f in away.iterdir()] == []
    assert [f.name.partition("-")[0] for f in here.iterdir()] == ["run"]
