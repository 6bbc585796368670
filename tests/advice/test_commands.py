"""The advice of the commands: it is typed in."""

import importlib
import json
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import pytest

import tandem
from tandem.cli import _command, main
from tandem.cli.train import _run
from tandem.errors import CheckpointError, ResumeError, RunFolderError
from tests.advice.net import advised
from tests.test_trainer import SMALL

SHORT = (
    "--quiet --framework torch --no-tensorboard --no-plots --hidden 8 --steps 64 --rollout 32 "
    "--envs 2 --batch-size 64 --eval-episodes 0 --final-episodes 1 --eval-max-steps 20"
)
VECTOR = "--vector tests.envs.vectors:Resumable"
OWN = f"train ppo {VECTOR}"
KWARGS = "--env-kwargs '{\"num_envs\": 2}'"
FILE = 'algorithm = "ppo"\nenv = "CartPole-v1"\n[settings]\ngamma = 0.97\n'
PPO, CONFIG = f"train ppo CartPole-v1 {SHORT}", "train --config file.toml"
CLASS = "tests.algorithms.own_classes:Penalised"
SEEDS = {"several": '"seeds": [0]}', "begun": '"seeds": [0, 1]}', "torn": "{"}


def tandem_(words: str) -> None:
    assert _command(shlex.split(words)) in (0, None)


OTHERS = "choose another, or resume them: {}"
AS_LONG = "train them to their original length first: --resume begun"
MORE = "train --resume begun --steps 96 --extend"
GAME = "config ppo CartPole-v1"


@pytest.mark.parametrize(
    "key, wrong, says, right",
    [
        ("_several", "train --resume plain --seeds 2", "leave it out", "train --resume plain"),
        ("several", f"{PPO} --seeds 1 --out several", OTHERS, "--resume several"),
        ("seeds.py:resumed", "train --resume several --seed 3", "leave them out", ""),
        ("seeds_command.py:read", "train --resume torn", "one by one: {}", "--resume torn/s0"),
        ("seeds.py:resumed 4", MORE, AS_LONG, ""),
        (
            "train_arguments.py:_fill",
            f"{CONFIG} --resume plain",
            "leave --resume out",
            f"{CONFIG} {SHORT}",
        ),
        ("parser.py:expect_both 2", "config ppo", "tandem {}", GAME),
        ("cli/config.py:run", f"{GAME} --out file.toml", "name another", f"{GAME} --out new.toml"),
        ("settings_file.py:read 2", "train --config list.json", "see an example: tandem {}", GAME),
        ("fill", "train --config class.json", "{}", f"train {CLASS} --config class.json"),
        ("fill 2", "train dqn --config file.toml", "leave dqn out", f"{CONFIG} {SHORT}"),
        ("train.py:_complete 3", f"{PPO} {VECTOR}", "leave CartPole-v1 out", f"{OWN} {SHORT}"),
        ("train.py:_complete 3", f"{PPO} {VECTOR}", "by --env-kwargs", f"{OWN} {KWARGS} {SHORT}"),
        ("check.py:run", "check", "tandem {}", "check CartPole-v1"),
    ],
)
def test_what_a_command_is_told_can_be_typed(key, wrong, says, right, runs, monkeypatch) -> None:
    """`right` stands in the fix for {}, and is run where it is not empty."""
    monkeypatch.chdir(runs)
    Path("file.toml").write_text(FILE, encoding="utf-8")
    Path("list.json").write_text("[]", encoding="utf-8")
    settings = {"algorithm": CLASS, "env": "CartPole-v1", "settings": {"hidden": [8], "steps": 64}}
    settings |= {"framework": "torch"}  # the other tests' process stays without Keras
    Path("class.json").write_text(json.dumps(settings), encoding="utf-8")
    command = f'{{"command": {json.dumps(PPO.split()[1:])}, '
    for name, said in SEEDS.items():
        shutil.copytree(runs / "plain", runs / name / "s0")
        (runs / name / "seeds.json").write_text(said if name == "torn" else command + said)
    assert says.replace("{}", right) in advised(key, tandem_, wrong).fix
    if "--resume" in right:
        right = f"train {right.removeprefix('train ')} --quiet"
    if right:
        tandem_(right)


def test_several_seeds_are_not_for_processes_launched_together(runs: Path) -> None:
    words = shlex.split(PPO)[1:]
    several = [*words, "--seeds", "2"]
    advice = advised("train.py:_run", _run, several, SimpleNamespace(count=1))
    assert "with --seed instead of --seeds" in advice.fix
    assert _run([*words, "--seed", "1"]) == 0


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
    run = tandem.session("ppo", "Zzyzx-v0", out="run", framework="torch", steps=64, **SMALL)
    list(run.events(32))
    config = json.loads(Path("run/config.json").read_text(encoding="utf-8"))
    assert config["origin"] == {"env_module": "own_games"}
    for command in COMMANDS:
        forget()
        flag = added(command, capsys)
        assert flag == "--import own_games"
        if not by_module:  # that module is there, and registers nothing
            assert added(f"{command} {flag}", capsys) == "--import MODULE"
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


def added(command: str, capsys: Any) -> str:
    """The flag that the error of a command says to add."""
    assert main(command.split()) in (1, 2)
    return re.findall(r"in a command, add (--import \w+)\.", capsys.readouterr().err)[0]


def test_a_module_to_import(here: Path) -> None:
    for module, key, says in (
        ("own_games", "parser.py:_Import.__call__", "run in the folder of own_games.py"),
        ("own_games.py", "expect_module", "write own_games"),
        ("./own_games.py", "expect_module", "write own_games"),
        ("games/own_games.py", "expect_module", "write own_games, in the folder games"),
    ):
        assert advised(key, tandem_, f"evaluate run --import {module}").fix.startswith(says)
    (here / "own_games.py").touch()
    with pytest.raises(RunFolderError):  # there is no run; the module was found
        tandem_("evaluate run --import own_games")


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
    assert added(resume, capsys) == flag
    assert main(f"{resume} {flag}".split()) == 0, capsys.readouterr().err
    forget()
    assert main(f"check Zzyzx-v0 --steps 10 {flag}".split()) == 0
    forget()
    assert main(f"config ppo Zzyzx-v0 --out mine.toml {flag}".split()) == 0
    assert capsys.readouterr().out.endswith(f"train --config mine.toml {flag}\n")
