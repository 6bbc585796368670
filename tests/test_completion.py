"""`tandem completion`: its scripts, by the shells that they are for."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from shlex import quote
from typing import Any

import pytest

from tandem import algorithms, plugins, zoo
from tandem.cli import COMMANDS, completion, main, shells
from tandem.errors import PluginError
from tandem.networks.plan import ACTIVATIONS
from tandem.runs import plugin_writers
from tests.test_plugins import broken, forgotten, maze, packages  # noqa: F401

BASH = """
source {script}
COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_tandem
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
# without a terminal zsh completes nothing: these stand for what its own functions would take
ZSH = """
compdef() {{ }}
_describe() {{ local one; for one in ${{described}}; do print -r -- "${{one%%:*}}"; done }}
compadd() {{ shift; print -rl -- $@ }}
compset() {{ cur=${{cur#*=}} }}
_files() {{ [[ $1 == -/ ]] && print -rl -- *(/) || print -rl -- * }}
source {script}
words=({words}); CURRENT=$#words
_tandem
"""
FISH = """
source {script}
complete -C {line} | string replace -r '\\t.*' ''
"""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a script for each shell, some runs beside them."""
    folder = tmp_path_factory.mktemp("scripts")
    known = completion.grammar()
    for name, script in shells.SHELLS.items():
        (folder / name).write_text(script(known), encoding="utf-8")
    for made in ("there/runs/a-run", "there/runs/b run"):
        (folder / made).mkdir(parents=True)
    for made in ("there/runs/best.zip", "there/settings.toml"):
        (folder / made).touch()
    return folder


def of(shell: str) -> str:
    """The shell's path; skips where it is not installed."""
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"{shell} is not installed")
    return found


def completed(scripts: Path, shell: str, line: str) -> set[str]:
    """What a shell offers for the last word of a line, those it leaves out by itself left out."""
    words, script = line.split(" "), scripts / shell
    if shell == "fish":
        code = FISH.format(script=script, line=quote(line))
    else:
        if shell == "bash":  # which reads = as a word
            words = [part for w in words for part in (re.split("(=)", w) if "=" in w else [w])]
            words = words[:-1] if line.endswith("=") else words
        asked = " ".join(quote(word) if word != "" else "''" for word in words)
        code = (BASH if shell == "bash" else ZSH).format(script=script, words=asked)
    plain = {"bash": ["--norc", "--noprofile"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]
    done = subprocess.run(
        [of(shell), *plain, "-c", code],
        capture_output=True,
        text=True,
        cwd=scripts / "there",
        # nothing of tandem's can be run: the script has all
        env={"PATH": "/usr/bin:/bin", "HOME": str(scripts), "LANG": "C.UTF-8"},
        timeout=60,
    )
    assert done.returncode in (0, 1) and not done.stderr, done.stderr
    found = {one.rstrip("/") for one in done.stdout.splitlines() if one}
    typed = words[-1] if words[-1] != "=" else ""
    if shell == "bash":
        return found
    # zsh itself leaves out what does not go on; fish would take letters from anywhere in a word
    if typed.startswith("--") and "=" in typed:
        flag, _, typed = typed.partition("=")
        found = {one.removeprefix(f"{flag}=") for one in found}
    return {one for one in found if one.startswith(typed)}


ASKED: list[tuple[str, set[str]]] = [
    ("tandem ", set(COMMANDS)),
    ("tandem ev", {"evaluate"}),
    ("tandem train p", {"ppo", "pqn"}),
    ("tandem train --quiet p", {"ppo", "pqn"}),
    ("tandem train --seed 3 p", {"ppo", "pqn"}),
    ("tandem train --seed=3 p", {"ppo", "pqn"}),
    ("tandem train ppo CartP", {"CartPole-v1"}),
    ("tandem train sac --gamma 0.9 Pend", {"Pendulum-v1"}),
    ("tandem train sac CartPole-v1 Pend", set()),
    ("tandem train vdn Cart", set()),
    ("tandem train dqn --doub", {"--double"}),
    ("tandem train dqn --no-doub", {"--no-double"}),
    ("tandem train sac --doub", set()),
    ("tandem train --stop", {"--stop-at"}),
    ("tandem train ppo --framework ", {"torch", "tensorflow", "jax", "keras-torch"}),
    ("tandem train ppo --framework=te", {"tensorflow"}),
    ("tandem train --log ", {"text", "json"}),
    ("tandem train ppo --vectorization n", {"native"}),
    ("tandem train dqn --entry r", {"rainbow"}),
    ("tandem train ppo --workers ", {"auto"}),
    ("tandem train ppo CartPole-v1 --activation ", set(ACTIVATIONS)),
    ("tandem sweep sac Pendulum-v1 --activation=si", {"sigmoid", "silu"}),
    ("tandem train ppo --steps ", set()),
    ("tandem config a2c Acro", {"Acrobot-v1"}),
    ("tandem config ppo CartPole-v1 --vf", set()),
    ("tandem sweep ppo CartPole-v1 --pruner h", {"hyperband"}),
    ("tandem find ", {"lr", "optimizer", "best"}),
    ("tandem find lr pq", {"pqn"}),
    ("tandem find best ppo dq", {"dqn"}),
    ("tandem find best ppo dqn CartP", {"CartPole-v1"}),
    ("tandem find lr ppo --poi", {"--points"}),
    ("tandem evaluate --which ", {"best", "last"}),
    ("tandem export x --to ", {"numpy", "onnx"}),
    ("tandem compare --which ", {"best", "last"}),
    ("tandem check mpe/simple_spr", {"mpe/simple_spread_v3"}),
    ("tandem completion ", {"bash", "zsh", "fish"}),
    ("tandem list ", set()),
    ("tandem -", {"--help", "--version"}),
    ("tandem train my_module:Mine CartP", {"CartPole-v1"}),
]


@pytest.mark.parametrize("shell", shells.SHELLS)
@pytest.mark.parametrize("line, expected", ASKED, ids=[line for line, _ in ASKED])
def test_what_is_offered(scripts: Path, shell: str, line: str, expected: set[str]) -> None:
    if shell == "bash" and ":" in line:
        line = line.replace(":", " : ")  # as bash has it
    assert completed(scripts, shell, line) == expected


@pytest.mark.parametrize("shell", ["bash", "fish"])
@pytest.mark.parametrize(
    "line, expected",
    [
        ("tandem evaluate runs/", {"runs/a-run", "runs/b run", "runs/best.zip"}),
        ("tandem report runs/", {"runs/a-run", "runs/b run"}),
        ("tandem plot runs/a-run runs/b", {"runs/b run"}),
        ("tandem train --resume runs/a", {"runs/a-run"}),
        ("tandem train --config set", {"settings.toml"}),
        ("tandem config ppo CartPole-v1 --out set", {"settings.toml"}),
    ],
)
def test_folders_and_files(scripts: Path, shell: str, line: str, expected: set[str]) -> None:
    assert completed(scripts, shell, line) == expected


def test_folders_and_files_of_zsh(scripts: Path) -> None:
    assert completed(scripts, "zsh", "tandem train --resume ") == {"runs"}
    assert completed(scripts, "zsh", "tandem train --config ") == {"runs", "settings.toml"}


@pytest.mark.parametrize("shell", shells.SHELLS)
def test_the_shell_can_read_it(scripts: Path, shell: str) -> None:
    done = subprocess.run([of(shell), "-n", scripts / shell], capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr


@pytest.mark.parametrize(
    "words",
    [
        *([name] for name in COMMANDS if name != "find"),
        *(["find", kind] for kind in completion.find.KINDS),
        *(["train", name] for name in algorithms.NAMES),
        ["config", "sac"],
        ["sweep", "dqn"],
        ["find", "lr", "td3"],
    ],
    ids=" ".join,
)
def test_the_flags_are_those_of_help(scripts: Path, words: list[str], capsys: Any) -> None:
    assert main([*words, "--help"]) == 0
    shown = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", _options(capsys.readouterr().out)))
    offered = completed(scripts, "bash", f"tandem {' '.join(words)} --")
    if len(words) == 1 + (words[0] == "find") and words[0] in ("train", "config", "sweep", "find"):
        # no algorithm yet: settings that all have, and a run's options, may be given before it
        assert shown <= offered and "--gamma" in offered and "--clip" not in offered
    else:
        assert offered == shown


def _options(text: str) -> str:
    """The beginnings of the lines that tell of flags."""
    return "\n".join(line[:80] for line in text.splitlines() if re.match(r"  -", line))


def test_every_tuned_environment_is_offered_for_its_algorithm(scripts: Path) -> None:
    for name in ("ppo", "qmix"):
        held = {e for t in zoo.environments(name) for e in zoo.families().get(t, (t,))}
        offered = completed(scripts, "bash", f"tandem train {name} ")
        assert offered == {env for env in held if "*" not in env}


def test_reading_it_takes_no_time(scripts: Path) -> None:
    """A shell reads the script when it begins, or when it first completes: no program is run."""
    script = (scripts / "bash").read_text(encoding="utf-8")
    assert "python" not in script.lower() and len(script) < 60_000
    commands = re.findall(r"\$\((\w+)", script)
    assert {c for c in commands if not c.startswith("_tandem")} == {"compgen"}


def test_what_is_refused(capsys: Any) -> None:
    assert main(["completion", "bsh"]) == 2
    assert "did you mean 'bash'" in capsys.readouterr().err
    assert main(["completion"]) == 2
    told = capsys.readouterr().err
    assert "Expected: one of bash, zsh, fish" in told and "tandem completion bash" in told


def test_a_package_is_completed_too(maze: Path, tmp_path: Path, capsys: Any) -> None:  # noqa: F811
    (tmp_path / "there").mkdir()
    assert main(["completion", "bash"]) == 0
    (tmp_path / "bash").write_text(capsys.readouterr().out)
    for line, expected in (
        ("tandem train maze", {"maze_pg"}),
        ("tandem train maze_pg ", {"maze/Corridor-v0"}),
        ("tandem train maze_pg --pen", {"--penalty"}),
        ("tandem train ppo --pen", set()),
        ("tandem train maze_pg --entry ", {"wide"}),
        ("tandem train ppo CartPole-v1 --writer ", {"lines"}),
    ):
        assert completed(tmp_path, "bash", line) == expected, line


def test_only_writers_that_work_are_offered(broken: Path) -> None:  # noqa: F811
    offered = completion.grammar().values["*/*/--writer"].split()
    assert "lines" in offered
    left = [name for name in plugins.found("writers") if name not in offered]
    assert left
    plugin_writers.check(offered)
    for name in left:
        with pytest.raises(PluginError):
            plugin_writers.check([name])
