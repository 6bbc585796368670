"""The README says what is true: its commands and its programs are run, in their order, in one empty
folder."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tandem.cli import COMMANDS
from tests.helpers import ALONE, ON_CPU, ONE_THREAD, QUIET, ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def run(command: list[str], folder: Path) -> str:
    env = (
        {k: v for k, v in os.environ.items() if k != "KERAS_BACKEND"}
        | ONE_THREAD
        | ON_CPU
        | ALONE
        | QUIET
    )
    env["PYTHONPATH"] = str(ROOT / "src")
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_block_runs(tmp_path) -> None:
    counts = {"sh": 0, "python": 0}
    for language, block in BLOCKS:
        if language == "sh":
            for line in block.splitlines():
                program, *given = shlex.split(line)
                assert program == "tandem", line
                run([sys.executable, "-m", "tandem", *given], tmp_path)
                counts["sh"] += 1
        elif language == "python":
            if "stable_baselines3" in block and find_spec("stable_baselines3") is None:
                continue  # installed by `make bench`
            script = tmp_path / "block.py"
            script.write_text(block, encoding="utf-8")
            run([sys.executable, str(script)], tmp_path)
            counts["python"] += 1
    assert counts["sh"] >= 8 and counts["python"] >= 4
    for made in (
        "cartpole.gif",
        "three-seeds.svg",
        "runs/cartpole/curve.png",
        "runs/keras/checkpoints/best.zip",
    ):
        assert (tmp_path / made).is_file(), made


def test_every_command_is_in_the_table() -> None:
    table = README[README.index("## Commands") : README.index("## Algorithms")]
    assert set(re.findall(r"`tandem (\w+)", table)) == set(COMMANDS)


def test_every_link_leads_somewhere() -> None:
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_loop_of_ones_own_takes_fifteen_lines() -> None:
    (block,) = [b for language, b in BLOCKS if language == "python" and "tandem.session" in b]
    assert len([line for line in block.splitlines() if line.strip()]) <= 15
