"""The advice of the commands: it is typed in."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from types import SimpleNamespace

import pytest

from tandem.cli import _command, main
from tandem.cli.train import _run
from tests.advice.net import follows

SHORT = (
    "--quiet --framework torch --no-tensorboard --no-plots --hidden 8 --steps 64 --rollout 32 "
    "--envs 2 --batch-size 64 --eval-episodes 0 --final-episodes 1 --eval-max-steps 20"
)
VECTOR = "tests.envs.vectors:Resumable"
FILES = {  # of settings
    "file.toml": 'algorithm = "ppo"\nenv = "CartPole-v1"\n[settings]\ngamma = 0.97\n',
    "list.json": "[]",
    "named.json": '{"algorithmm": "ppo"}',
    "seed.json": '{"seed": "1"}',
    "code.json": '{"algorithm": "ppo", "env": "CartPole-v1", "own_network": true}',
    "class.json": '{"algorithm": "tests.algorithms.own_classes:Penalised"}',
    "gama.json": '{"algorithm": "ppo", "env": "CartPole-v1", "settings": {"gama": 0.9}}',
}
FILES["text.toml"] = FILES["file.toml"].replace("0.97", '"0.97"')
PPO = f"train ppo CartPole-v1 {SHORT}"


def tandem_(words: str) -> None:
    assert _command(shlex.split(words)) in (0, None)


def told(fix: str) -> str:
    """The first thing in quotes of a fix, or the command, or the flag with its value."""
    found = re.search(r"'([^' ]+)'|`tandem (.+)`|tandem (train [^;.]+)|(--[a-z]+ [-./\w]*\w)", fix)
    assert found, fix
    return next(one for one in found.groups() if one)


@pytest.mark.parametrize(
    "key, wrong, says, right",
    [
        (
            "cli/train.py:_several",
            "train --resume plain --seeds 2",
            "leave it out: the folder of several runs says how many there are",
            "train --resume plain --quiet",
        ),
        (
            "cli/seeds.py:several",
            f"{PPO} --seeds 1 --out torn",
            "choose another",
            f"{PPO} --seeds 1 --out another",
        ),
        (
            "cli/seeds.py:several",
            f"{PPO} --seeds 1 --out several",
            "go on with them",
            "train {told} --quiet",
        ),
        (
            "cli/seeds.py:resumed",
            "train --resume several --seed 3",
            "leave them out",
            "train --resume several --quiet",
        ),
        (
            "cli/seeds_command.py:read",
            "train --resume torn --quiet",
            "resume the runs one by one",
            "train {told} --quiet",
        ),
        pytest.param(
            "cli/seeds.py:resumed 4",
            "train --resume begun --steps 96 --extend",
            "train them as long as they were to be first",
            "train {told} --quiet",
            marks=pytest.mark.slow,
        ),
        (
            "cli/train.py:_settings_file",
            "train --config file.toml --resume plain",
            "or --resume, to begin anew",
            f"train --config file.toml {SHORT}",
        ),
        ("cli/config.py:_arguments", "config ppo", "CartPole-v1", "config ppo CartPole-v1"),
        (
            "cli/config.py:run",
            "config ppo CartPole-v1 --out file.toml",
            "name another",
            "config ppo CartPole-v1 --out another.toml",
        ),
        ("cli/settings_file.py:read 2", "train --config list.json", "shows one", "{told}"),
        (
            "cli/settings_file.py:fill 2",
            "train dqn --config file.toml",
            "leave dqn out",
            f"train --config file.toml {SHORT}",
        ),
        (
            "cli/train.py:_complete 2",
            f"train ppo CartPole-v1 --vector {VECTOR} {SHORT}",
            "leave CartPole-v1 out",
            f"train ppo --vector {VECTOR} {SHORT}",
        ),
        (
            "cli/train.py:_complete 2",
            f"train ppo CartPole-v1 --vector {VECTOR} {SHORT}",
            "takes arguments by --env-kwargs",
            f"train ppo --vector {VECTOR} --env-kwargs '{{\"num_envs\": 2}}' {SHORT}",
        ),
        ("cli/check.py:run", "check", "tandem check CartPole-v1", "check CartPole-v1 --steps 20"),
    ],
)
def test_what_a_command_is_told_can_be_typed(key, wrong, says, right, runs, monkeypatch) -> None:
    monkeypatch.chdir(runs)
    for name, said in FILES.items():
        (runs / name).write_text(said)
    (runs / "another.toml").unlink(missing_ok=True)
    whole = '{"command": [], "seeds": [0]}'
    begun = whole.replace("0", "0, 1")
    for name, said in (("several", whole), ("begun", begun), ("torn", "{")):
        if wrong.split(" --")[-1].partition(" ")[2] == name or f"--resume {name}" in wrong:
            shutil.copytree(runs / "plain", runs / name / "s0", dirs_exist_ok=True)
            (runs / name / "seeds.json").write_text(said.replace("[]", json.dumps(PPO.split()[1:])))
    with follows(key) as advice:
        tandem_(wrong)
    assert says in advice.fix
    typed = right.replace("{told}", told(advice.fix)) if "{told}" in right else right
    words = shlex.split(typed)
    if "--help" in words:
        assert main(words) == 0
    else:
        tandem_(shlex.join(words))


def test_several_seeds_are_not_for_processes_launched_together(runs) -> None:
    launch = SimpleNamespace(count=1)
    words = shlex.split(PPO)[1:]
    with follows("cli/train.py:_run") as advice:
        _run([*words, "--seeds", "2"], launch)
    assert "with --seed instead of --seeds" in advice.fix
    assert _run([*words, "--seed", "1"]) == 0
