"""Which folder a run is in, who is at work there, and how a command names it."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tandem
from tandem.animation import film
from tandem.cli import main
from tandem.drlbox.makers import make_trainer
from tandem.errors import ResumeError, RunFolderError
from tandem.testing.environments import TerminatedTruncatedPair
from tests.agents.agents import Probe, trained
from tests.helpers import ROOT
from tests.runs.shared import QUICK, child

SMALL = QUICK | {"steps": 64, "envs": 2, "rollout": 8}
FLAGS = (
    "--framework torch --steps 64 --envs 2 --rollout 8 --hidden 8 --no-plots --no-tensorboard "
    "--eval-episodes 1 --final-episodes 1 --quiet"
)
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
    pytest.importorskip("torch")
    tandem.train("a2c", cart, out=tmp_path / "run", stop_at=32, **SMALL)
    return tmp_path / "run"


def cart() -> Any:
    import gymnasium

    return gymnasium.make("CartPole-v1")


@pytest.fixture
def other(half: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has begun to resume it."""
    with child("-c", WAITING, str(half)) as process:
        assert process.stdout is not None and process.stdout.readline() == "there\n"
        yield process
        process.kill()


def test_the_second_of_two_that_resume_a_run_is_refused_before_the_first_has_written(
    half: Path, other: subprocess.Popen[bytes], capsys: pytest.CaptureFixture[str]
) -> None:
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


def test_a_checkpoint_of_an_agent_is_answered_with_the_folder_of_its_run(
    half: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(half.parent)
    with pytest.raises(RunFolderError, match="an agent, not a whole run") as caught:
        tandem.train(resume="run/checkpoints/best.zip", env=cart)
    assert caught.value.fix == f"give {half}."
    assert main(["train", "--resume", "run/checkpoints/best.zip"]) == 2
    assert f"Fix: give {half}." in capsys.readouterr().err


@pytest.mark.slow
def test_printed_commands_take_folders_that_look_like_flags(tmp_path, monkeypatch, capfd) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    train = ["train", "a2c", "CartPole-v1", *FLAGS.split()]

    def printed() -> list[list[str]]:
        lines = [line.strip() for line in capfd.readouterr().out.splitlines()]
        return [shlex.split(line)[1:] for line in lines if line.startswith("tandem ")]

    assert main([*train, "--out=-a run"]) == 0
    commands = printed()
    assert [words[0] for words in commands] == ["watch", "evaluate", "train"]
    for words in commands[1:]:
        words = ["1" if word == "100" else word for word in words]  # episodes
        assert main(words) == 0, words
    capfd.readouterr()
    assert main([*train, "--out=-several", "--seeds", "1"]) == 0
    (plot,) = printed()
    assert main(plot) == 0
    (Path("-several") / "s0" / "result.json").unlink()
    assert main(["train", "--resume=-several", "--quiet"]) == 0
    assert (Path("-several") / "s0" / "result.json").is_file()
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
    here, away = tmp_path / "here", tmp_path / "away"
    here.mkdir()
    away.mkdir()
    monkeypatch.setattr(Moves, "away", str(away))
    monkeypatch.chdir(here)
    door()
    assert [f.name for f in away.iterdir()] == []
    assert [f.name.partition("-")[0] for f in here.iterdir()] == ["run"]
