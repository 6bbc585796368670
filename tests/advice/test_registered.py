"""The advice about runs in environments that a program registered: other programs, and commands,
go on with them by it."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import pytest

import tandem
from tandem.cli import _command, main
from tandem.errors import CheckpointError, ResumeError, RunFolderError
from tests.advice.net import follows

FAST: dict[str, Any] = {
    "framework": "torch",
    "steps": 64,
    "envs": 2,
    "rollout": 16,
    "batch_size": 32,
    "eval_episodes": 0,
    "final_episodes": 1,
    "plots": False,
    "tensorboard": False,
}
MODULE = """
import gymnasium
from tests.advice.worlds import Toy


class Mine(Toy):
    def step(self, action):
        return *super().step(action)[:2], self.t >= 5, False, {}

"""
REGISTERS = "gymnasium.register('Zzyzx-v0', entry_point={})\n"
COMMANDS = (
    "train --config run/config.json --out again --quiet",
    "evaluate run",
    "train --resume run --quiet",
    "verify run --quiet",
)


def forget() -> None:
    """As in a process that has imported nothing of them."""
    gymnasium.registry.pop("Zzyzx-v0", None)
    for name in ("own_games", "registering"):
        sys.modules.pop(name, None)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    forget()  # other tests have modules of these names
    yield tmp_path
    forget()


@pytest.mark.parametrize("by_module", [True, False], ids=["its module", "the program"])
def test_an_id_whose_class_is_in_a_module(here: Path, capsys: Any, by_module: bool) -> None:
    """What registers it is that module, or the program, which is then to be put into a module."""
    text = MODULE + (REGISTERS.format("Mine") if by_module else "")
    (here / "own_games.py").write_text(text)
    mine = importlib.import_module("own_games").Mine
    if not by_module:
        gymnasium.register("Zzyzx-v0", entry_point=mine)
    run = tandem.session("ppo", "Zzyzx-v0", out="run", **FAST)
    list(run.events(32))
    config = json.loads(Path("run/config.json").read_text(encoding="utf-8"))
    assert config["origin"] == {"env_module": "own_games"}
    for command in COMMANDS:
        forget()
        flag = advised(command, capsys)
        assert flag == "--import own_games"
        if not by_module:  # that module is there, and registers nothing
            assert advised(f"{command} {flag}", capsys) == "--import MODULE"
            register = "import gymnasium, own_games\n" + REGISTERS.format("own_games.Mine")
            (here / "registering.py").write_text(register)
            flag = "--import registering"
        assert main(f"{command} {flag}".split()) == 0, capsys.readouterr().err
        if "--resume" in command:
            assert f"tandem evaluate run --episodes 100 {flag}\n" in capsys.readouterr().out
    forget()
    with pytest.raises(ResumeError, match="Fix: import own_games first"):
        tandem.train(resume="run")
    with pytest.raises(CheckpointError, match="Fix: import own_games first"):
        tandem.load("run").play()
    tandem.session(resume="run", env=mine).backend.close()  # what is given needs no id
    importlib.import_module("own_games" if by_module else "registering")
    assert tandem.train(resume="run", steps=96, extend=True).summary["env_steps"] == 96


def advised(command: str, capsys: Any) -> str:
    """The flag that the error of a command says to add."""
    assert main(command.split()) in (1, 2)
    return re.findall(r"of a command, add (--import \w+)\.", capsys.readouterr().err)[0]


def test_a_module_to_import(here: Path) -> None:
    words = ["evaluate", "run", "--import", "own_games"]
    with follows("cli/parser.py:_Import.__call__") as advice:
        _command(words)
    assert "be in the folder of own_games.py" in advice.fix
    for path, says in (("own_games.py", "own_games."), ("./own_games.py", "own_games.")):
        with follows("cli/parser.py:_Import.__call__") as advice:
            _command([*words[:-1], path])
        assert advice.fix == f"give its name, as in --import {says}"
    with follows("cli/parser.py:_Import.__call__") as advice:
        _command([*words[:-1], "games/own_games.py"])
    assert advice.fix == "give its name, as in --import own_games, from the folder games."
    (here / "own_games.py").touch()
    with pytest.raises(RunFolderError):  # there is no run; the module was found
        _command(words)


@pytest.mark.slow
def test_what_looks_for_settings_imports_it_in_its_processes(here: Path, capsys: Any) -> None:
    (here / "own_games.py").write_text(MODULE + REGISTERS.format("Mine"))
    flag = "--import own_games"
    small = "--framework torch --steps 64 --envs 2 --rollout 16 --batch-size 32 --quiet"
    find = f"find lr ppo Zzyzx-v0 --points 2 --processes 1 --out found {small} {flag}"
    assert main(find.split()) == 0, capsys.readouterr().err
    assert capsys.readouterr().out.splitlines()[-1].endswith(flag)
    sweep = f"sweep ppo Zzyzx-v0 --trials 1 --parallel 1 --out swept {small} {flag}"
    assert main(sweep.split()) == 0, capsys.readouterr().err
    assert f"--seeds 5 {flag}\n" in capsys.readouterr().out
    forget()
    resume = "sweep --resume swept --trials 2 --quiet"
    assert advised(resume, capsys) == flag
    assert main(f"{resume} {flag}".split()) == 0, capsys.readouterr().err
    forget()
    assert main(f"check Zzyzx-v0 --steps 10 {flag}".split()) == 0
    forget()
    assert main(f"config ppo Zzyzx-v0 --out mine.toml {flag}".split()) == 0
    assert capsys.readouterr().out.endswith(f"train --config mine.toml {flag}\n")
