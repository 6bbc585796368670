"""`tandem completion`: the generated scripts, and completions in bash."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tandem.cli import COMMANDS, main
from tandem.cli.completion import SHELLS
from tandem.networks.plan import ACTIVATIONS
from tests.test_plugins import broken, forgotten, maze, packages  # noqa: F401

BASH = """
source "$1"
for line in "${@:2}"; do
    read -ra COMP_WORDS <<< "$line"
    [[ $line == *' ' ]] && COMP_WORDS+=('')
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    $(complete -p tandem | sed 's/.*-F \\([^ ]*\\).*/\\1/')
    (IFS=$'\\t'; echo "${COMPREPLY[*]}")
done
"""
EXPECTED: dict[str, set[str]] = {
    "tandem ": set(COMMANDS),
    "tandem ev": {"evaluate"},
    "tandem train p": {"ppo", "pqn"},
    "tandem train --quiet --seed 3 p": {"ppo", "pqn"},
    "tandem train --no-double pq": {"pqn"},
    "tandem train ppo --gamma 0.9 CartP": {"CartPole-v1"},
    "tandem train dqn --doub": {"--double"},
    "tandem train --stop": {"--stop-at"},
    "tandem train ppo --framework ": {"torch", "tensorflow", "jax", "keras-torch"},
    "tandem train ppo --optimizer r": {"radam", "rmsprop"},
    "tandem train --log ": {"text", "json"},
    "tandem train dqn --entry r": {"rainbow"},
    "tandem sweep sac Pendulum-v1 --activation ": set(ACTIVATIONS),
    "tandem sweep ppo --pruner h": {"hyperband"},
    "tandem find ": {"lr", "optimizer", "best"},
    "tandem find best ppo dqn CartP": {"CartPole-v1"},
    "tandem find lr ppo --poi": {"--points"},
    "tandem completion ": set(SHELLS),
    "tandem evaluate runs/": {"runs/a run", "runs/best.zip"},
    "tandem train --resume runs/": {"runs/a run"},
    "tandem config ppo CartPole-v1 --out set": {"settings.toml"},
}
needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")


def script(shell: str, folder: Path, capsys: Any) -> Path:
    """The file with what `tandem completion` prints."""
    assert main(["completion", shell]) == 0
    (folder / shell).write_text(capsys.readouterr().out, encoding="utf-8")
    return folder / shell


def completed(script: Path, *lines: str) -> list[set[str]]:
    """The completions of each line in bash, which can run nothing of tandem."""
    command = ["bash", "--norc", "--noprofile", "-c", BASH, "bash", script, *lines]
    env, folder = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}, script.parent
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=env, timeout=60)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return [set(filter(None, line.split("\t"))) for line in done.stdout.split("\n")[:-1]]


@needs_bash
def test_bash(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "runs" / "a run").mkdir(parents=True)
    for file in ("runs/best.zip", "settings.toml"):
        (tmp_path / file).touch()
    found = completed(script("bash", tmp_path, capsys), *EXPECTED)
    assert dict(zip(EXPECTED, found, strict=True)) == EXPECTED


@pytest.mark.parametrize("shell", SHELLS)
def test_the_shell_can_read_it(shell: str, tmp_path: Path, capsys: Any) -> None:
    file = script(shell, tmp_path, capsys)
    text = file.read_text(encoding="utf-8")
    assert all(word in text for word in (*COMMANDS, "--munchausen", "CartPole-v1", "keras-torch"))
    if shutil.which(shell):
        done = subprocess.run([shell, "-n", file], capture_output=True, text=True)
        assert done.returncode == 0 and not done.stderr


@needs_bash
def test_a_package_is_completed_too(maze: Path, tmp_path: Path, capsys: Any) -> None:  # noqa: F811
    lines = "maze", "maze_pg maze/", "maze_pg --pen", "maze_pg --entry w", "ppo --writer l"
    file = script("bash", tmp_path, capsys)
    expected = [{"maze_pg"}, {"maze/Corridor-v0"}, {"--penalty"}, {"wide"}, {"lines"}]
    assert completed(file, *(f"tandem train {line}" for line in lines)) == expected


def test_a_broken_package_does_no_harm(broken: Path, capsys: Any) -> None:  # noqa: F811
    assert main(["completion", "bash"]) == 0
    assert "maze_pg" in capsys.readouterr().out
    for words, says in ((["bsh"], "did you mean 'bash'"), ([], "are required: bash|zsh|fish")):
        assert main(["completion", *words]) == 2
        assert says in capsys.readouterr().err
