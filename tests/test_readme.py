"""The README is complete where it claims to be. That its programs run and its names exist,
test_docs.py sees to, as for every page."""

from __future__ import annotations

import re

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
