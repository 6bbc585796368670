"""The advice of the commands: it is typed in."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tandem
from tandem import algorithms, trainer
from tandem.cli import _command, main
from tandem.cli.parser import json_object
from tandem.cli.train import _run
from tests.advice.conftest import cart
from tests.advice.net import follows
from tests.helpers import held

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
        ("cli/__init__.py:_command", "trian --help", "did you mean", "{told} --help"),
        (
            "cli/agents.py:find",
            "evaluate plain --which lats --episodes 1",
            "did you mean",
            "evaluate plain --which {told} --episodes 1",
        ),
        (
            "cli/export.py:run",
            "export plain --to onyx",
            "did you mean 'onnx'",
            "export plain --to {told}",
        ),
        (
            "cli/export.py:run 2",
            "export plain --to numpy --out agent.zip",
            "--out",
            "export plain --to numpy {told}",
        ),
        ("cli/parser.py:Parser.error", "evaluate", "explains them", "{told}"),
        (
            "cli/parser.py:Parser.read",
            "evaluate plain --jason --episodes 1",
            "did you mean",
            "evaluate plain {told} --episodes 1",
        ),
        ("cli/train.py:_expect_log", f"{PPO} --log jsn", "'json'", f"{PPO} --log {{told}}"),
        (
            "cli/train.py:_expect_log 2",
            f"{PPO} --log json --seeds 1",
            "a command of its own (--seed",
            f"{PPO} --log json --seed 0",
        ),
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
            "cli/seeds.py:resumed 3",
            "train --resume several --steps 96",
            "add --extend, or leave --steps out",
            "train --resume several --quiet",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "cli/seeds.py:resumed 4",
            "train --resume begun --steps 96 --extend",
            "train them as long as they were to be first",
            "train {told} --quiet",
            marks=pytest.mark.slow,
        ),
        (
            "cli/train.py:_made",
            "train --resume plain --seed 3 --quiet",
            "leave them out",
            "train --resume plain --quiet",
        ),
        (
            "cli/train.py:arguments",
            "train CartPole-v1 ppo",
            "write the algorithm first",
            "{told} " + SHORT,
        ),
        (
            "zoo/owners.py:refuse",
            f"{PPO} --tau 0.1",
            "leave it out",
            PPO,
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
        (
            "cli/settings_file.py:read",
            "train --config nowhere.toml",
            "`tandem config",
            "config ppo CartPole-v1 --out nowhere.toml",
        ),
        ("cli/settings_file.py:read 2", "train --config list.json", "shows one", "{told}"),
        (
            "cli/settings_file.py:read 3",
            "train --config named.json",
            "did you mean",
            "config --help",
        ),
        ("cli/settings_file.py:read 4", "train --config seed.json", "shows one", "{told}"),
        (
            "cli/settings_file.py:read 5",
            "train --config code.json",
            "name the environment by its id",
            f"train --config file.toml {SHORT}",
        ),
        (
            "cli/settings_file.py:fill",
            "train --config class.json",
            "--config class.json",
            "train tests.algorithms.own_classes:Penalised CartPole-v1 --config class.json "
            f"--penalty 1.0 {SHORT}",
        ),
        (
            "cli/settings_file.py:fill 2",
            "train dqn --config file.toml",
            "leave dqn out",
            f"train --config file.toml {SHORT}",
        ),
        ("cli/settings_file.py:fill 3", "train --config gama.json", "did you mean", PPO),
        (
            "cli/settings_file.py:fill 4",
            "train --config text.toml",
            "write gamma = 0.99, say.",
            f"train --config file.toml {SHORT}",
        ),
        ("zoo/owners.py:refuse", f"{PPO} --tau 0.1", "shows those of ppo", "{told}"),
        ("cli/train.py:_complete", "train", "tandem train ppo", "{told} " + SHORT),
        ("cli/train.py:_complete", "train", "`tandem list` shows more", "list"),
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
        ("cli/train.py:_complete 4", f"{PPO} --extend", "or leave it out", PPO),
        (
            "cli/train.py:_complete 4",
            f"{PPO} --extend",
            "add --resume DIR",
            "train --resume plain --steps 96 --extend --quiet",
        ),
        (
            "cli/parser.py:json_object",
            "train ppo FrozenLake-v1 --env-kwargs is_slippery=false",
            "write it in quotes: --env-kwargs '{\"",
            f"train ppo FrozenLake-v1 --env-kwargs '{{\"is_slippery\": false}}' {SHORT}",
        ),
        *(
            pytest.param(
                "cli/verify.py:run", "verify plain --steps 0", *told, marks=pytest.mark.slow
            )
            for told in (
                ("--steps", "verify plain {told} --quiet"),
                ("leave it out", "verify plain --quiet"),
            )
        ),
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


def test_arguments_of_an_environment_are_json() -> None:
    with follows("cli/parser.py:json_object") as advice:
        json_object("env-kwargs", "{continuous}")
    flag, value = shlex.split(advice.fix.partition(": ")[2])
    assert json_object(flag.removeprefix("--"), value) == json.loads(value)


@pytest.mark.parametrize("algorithm", algorithms.NAMES)
def test_the_environment_that_is_proposed_is_one_for_the_algorithm(algorithm) -> None:
    with follows("cli/train.py:_complete 3") as advice:
        tandem_(f"train {algorithm}")
    _, train, name, env = shlex.split(advice.fix)
    assert (train, name) == ("train", algorithm)
    few = {"buffer_size": 1000} if hasattr(algorithms.get(name).Settings, "buffer_size") else {}
    trainer.session(algorithm, env, framework="torch", plots=False, **few)


def test_an_environment_from_a_program(runs, monkeypatch) -> None:
    monkeypatch.chdir(runs)
    with follows("cli/agents.py:Loaded.expect_id") as advice:
        tandem_("evaluate cart")
    code = advice.fix.removeprefix("do it in Python: ").rstrip(".")
    eval(code, {"tandem": tandem, "folder": runs / "cart", "env": cart})


def test_a_network_from_a_module(runs, monkeypatch) -> None:
    monkeypatch.chdir(runs)
    with follows("cli/export.py:named") as advice:
        tandem_("export own --to onnx --network nowhere:body")
    flag, place = re.findall(r"(--network) (\w+:\w+)", advice.fix)[0]
    module, _, function = place.partition(":")
    program = f"from tests.advice.conftest import body as made\n\n{function} = made()\n"
    (runs / f"{module}.py").write_text(program)
    tandem_(f"export own --to onnx {flag} {place}")


def test_names_of_settings_are_flags(runs: Any, monkeypatch) -> None:
    """A number that is out of its range is answered with a flag and a value."""
    monkeypatch.chdir(runs)
    with follows("settings.py:whole_number") as advice:
        tandem_("watch plain --max-steps 0 --out a.gif")
    (right,) = re.findall(r"--[-a-z]+=\d+", advice.fix)
    tandem_(f"watch plain {right} --out a.gif")


def test_seeds_that_another_process_trains_do_not_go_on(runs, monkeypatch) -> None:
    monkeypatch.chdir(runs)
    shutil.copytree("plain", Path("held", "s0"))
    said = {"command": PPO.split()[1:], "seeds": [0]}
    Path("held", "seeds.json").write_text(json.dumps(said), encoding="utf-8")
    with held(Path("held", "s0", ".lock")), follows("cli/seeds.py:resumed 2") as advice:
        tandem_("train --resume held")
    assert "wait for it, or stop it (Ctrl-C)" in advice.fix
    tandem_("train --resume held --quiet")


def test_several_seeds_are_not_for_processes_launched_together(runs) -> None:
    launch = SimpleNamespace(count=1)
    words = shlex.split(PPO)[1:]
    with follows("cli/train.py:_run") as advice:
        _run([*words, "--seeds", "2"], launch)
    assert "with --seed instead of --seeds" in advice.fix
    assert _run([*words, "--seed", "1"]) == 0
