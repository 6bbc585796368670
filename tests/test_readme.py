"""The README is complete where it claims to be. That its programs run and its names exist,
test_docs.py sees to, as for every page."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tandem.cli import COMMANDS
from tests.helpers import ROOT
from tests.pages import blocks

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_every_command_is_in_the_table() -> None:
    table = README[README.index("## Commands") : README.index("## Algorithms")]
    assert set(re.findall(r"`tandem (\w+)", table)) == set(COMMANDS)


def test_there_is_a_program_for_each_way_to_use_it() -> None:
    languages = [block.language for block in blocks(README)]
    commands = [b.text.count("\n") for b in blocks(README) if b.language == "sh"]
    assert sum(commands) >= 8 and languages.count("python") >= 4


def test_the_loop_of_ones_own_takes_fifteen_lines() -> None:
    (program,) = [
        b for b in blocks(README) if b.language == "python" and "tandem.session" in b.text
    ]
    assert len([line for line in program.text.splitlines() if line.strip()]) <= 15


@pytest.mark.slow
def test_a_users_program_is_type_checked(tmp_path) -> None:
    """What py.typed promises: names of the package are no `Any`, and the README's programs fit."""
    pytest.importorskip("mypy", reason="comes with `make lint`")
    programs = [block.text for block in blocks(README) if block.language == "python"]
    wrong = "import tandem\n\ntandem.train('ppo', 'CartPole-v1', seed='0')\ntandem.load(3)\n"
    for i, text in enumerate([*programs, wrong]):
        (tmp_path / f"program_{i}.py").write_text(text)
    options = ["--strict", "--ignore-missing-imports", "--config-file=", "--no-site-packages"]
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "."],
        cwd=tmp_path,
        env={"MYPYPATH": str(ROOT / "src"), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=300,
    )
    lines = checked.stdout.splitlines()
    errors = [line for line in lines if line.startswith("program_") and "error:" in line]
    of_wrong = [line for line in errors if f"program_{len(programs)}.py" in line]
    assert errors == of_wrong and len(of_wrong) == 2, checked.stdout + checked.stderr
