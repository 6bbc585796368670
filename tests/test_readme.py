"""The README is short, and the programs of the front pages are typed."""

import re
import subprocess
import sys

import pytest

from tests.helpers import ROOT
from tests.pages import blocks

README = (ROOT / "README.md").read_text(encoding="utf-8")
STRICT = ["--strict"]
# these programs leave out annotations, and torch, whose classes they derive from, is `Any` here
PLAIN = [*STRICT, "--allow-untyped-defs", "--allow-incomplete-defs", "--allow-untyped-calls"]
PLAIN += ["--allow-subclassing-any"]


def test_it_is_short_and_has_a_program_a_command_and_their_outputs() -> None:
    assert README.count("\n") <= 137 and len(README.split()) <= 900
    found = blocks(README)
    assert {"python", "sh", "console"} <= {block.language for block in found}
    assert all(block.output for block in found if block.language in ("python", "sh"))
    # a fresh machine needs two commands
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    console = "".join(block.text for block in found if block.language == "console")
    for target in ("train", "test"):
        assert f"make {target} " in console and re.search(f"^{target}:", makefile, re.MULTILINE)


def test_pictures_are_small_and_the_loop_over_events_takes_fifteen_lines() -> None:
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", README)
    assert any(name.endswith(".gif") for name in pictures) and "docs/assets/speed.svg" in pictures
    for name in pictures:
        assert (ROOT / name).stat().st_size < 1_000_000, name
    page = (ROOT / "docs" / "howto" / "callbacks.md").read_text(encoding="utf-8")
    programs = [b for b in blocks(page) if b.language == "python" and "tandem.session" in b.text]
    assert min(len([line for line in b.text.splitlines() if line.strip()]) for b in programs) <= 15


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "names"),
    [
        (STRICT, ["README.md", "docs/howto/callbacks.md", "docs/start/first-run.md"]),
        (PLAIN, [f"docs/{n}.md" for n in ("howto/save-load-deploy", "advanced/agent")]),
        (PLAIN, ["docs/advanced/cluster.md"]),
    ],
)
def test_a_users_program_is_type_checked(options, names, tmp_path) -> None:
    """py.typed promises types: the package's names are no `Any`, and the programs are typed."""
    pytest.importorskip("mypy", reason="comes with `make lint`")
    texts = [(ROOT / name).read_text(encoding="utf-8") for name in names]
    programs = [b.text for text in texts for b in blocks(text) if b.language == "python"]
    wrong = "import tandem\n\ntandem.train('ppo', 'CartPole-v1', seed='0')\ntandem.load(3)\n"
    for i, text in enumerate([*programs, wrong]):
        (tmp_path / f"program_{i}.py").write_text(text)
    command = [sys.executable, "-m", "mypy", *options, "--ignore-missing-imports"]
    command += ["--config-file=", "--no-site-packages", "."]
    env = {"MYPYPATH": str(ROOT / "src"), "PATH": ""}
    checked = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    lines = checked.stdout.splitlines()
    errors = [line for line in lines if line.startswith("program_") and "error:" in line]
    of_wrong = [line for line in errors if f"program_{len(programs)}.py" in line]
    assert errors == of_wrong and len(of_wrong) == 2, checked.stdout + checked.stderr
