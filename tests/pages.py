"""The pages (README.md, CONTRIBUTING.md, CHANGELOG.md, docs/**/*.md): their code blocks, and a
program that runs them: `python -m tests.pages FOLDER [--whole] PAGE…`.

The word after a block's fence says what it is:

| word    | the block is                                     | the tests |
|---------|--------------------------------------------------|-----------|
| sh      | commands of tandem; a backslash continues a line | run it    |
| python  | a whole program                                  | run it    |
| py      | a program, or part of one, of another library's  | do not    |
| output  | what the block before it prints                  | compare it|
| console | what sets a machine up: pip, make, git, ray      | do not    |
| text    | a formula, a drawing, the contents of a file     | do not    |

The blocks of a page are run in their order in one empty folder, so that a block finds what earlier
ones made. A program whose first line is a comment with the name of a file has that name there, and
later blocks can import it. All pages share one process, so that a framework is imported once.

Where pages are run whole, each line of an `output` block must be printed, in this order; more lines
may come between. `…` stands for anything. A number may differ by 10 %, or by what a comment before
the block says (`<!-- tolerance: 25% -->`); seconds, speeds, megabytes and the shares of
a `time:` line are not compared.
"""

import argparse
import json
import os
import re
import runpy
import shlex
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.helpers import ROOT

RUN = {"sh", "python"}
LANGUAGES = RUN | {"output", "console", "text", "py"}

# What is left of a block that is not run whole.
MOST = {"steps": 300, "stop_at": 150, "train_steps": 300, "episodes": 2, "eval_episodes": 0}
MOST |= {"final_episodes": 1, "N": 32}
NUMBER = re.compile(rf"(--|\b)({'|'.join(MOST).replace('_', '[_-]')})([ =])(\d[\d_]*)\b")
NO_MORE = {"steps": "300", "eval-episodes": "0", "final-episodes": "1", "framework": "torch"}
FIGURE = r"[-−]?\d+(?:[,_]\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?"
TIMED = r"(?= ?(?:s|ms|min|minutes|seconds|steps/s|steps a second|MB)\b)"


@dataclass(frozen=True)
class Block:
    """A fenced block: its word, text, first line's number, and the output after it."""

    language: str
    text: str
    line: int
    output: str = ""
    tolerance: float = 0.1


def pages() -> list[Path]:
    """Every page, README.md first."""
    names = ("README", "CONTRIBUTING", "CHANGELOG", "SECURITY")
    top = [ROOT / f"{name}.md" for name in names]
    return [*top, *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a page's text."""
    found: list[Block] = []
    for m in re.finditer(r"^```(.*)\n((?:.*\n)*?)```$", page, re.MULTILINE):
        if m[1] == "output":
            stated = re.search(r"<!-- tolerance: (\d+)% -->\s*$", page[: m.start()])
            more = {"tolerance": int(stated[1]) / 100} if stated else {}
            found[-1] = replace(found[-1], output=m[2], **more)
        found.append(Block(m[1], m[2], page.count("\n", 0, m.start()) + 2))
    return found


def missing_line(expected: str, printed: str, tolerance: float) -> str | None:
    """The first line of an expected output that is not printed after those before it, or None."""
    lines = iter(printed.splitlines())
    for line in expected.splitlines():
        if line.strip(" …") and not any(_alike(line, each, tolerance) for each in lines):
            return line
    return None


def _alike(line: str, printed: str, tolerance: float) -> bool:
    """Whether a printed line is the expected one, with numbers within `tolerance`."""
    pattern, numbers = "", []
    for part in re.split(f"({FIGURE}|…|\\s+)", line.strip()):
        if part == "…":
            pattern += ".*"
        elif re.fullmatch(FIGURE, part):
            numbers.append(part)
            pattern += f"({FIGURE})"
        else:
            pattern += r"\s+" if part.isspace() else re.escape(part)
    if not (found := re.fullmatch(pattern, printed.strip())):
        return False
    for i, expected in enumerate(numbers, 1):
        if line.startswith("time:") or re.match(TIMED, printed.strip()[found.end(i) :]):
            continue
        a, b = _number(expected), _number(found[i])
        if abs(a - b) > tolerance * max(abs(a), abs(b)):
            return False
    return True


def _number(text: str) -> float:
    return float(text.replace("−", "-").replace(",", "").replace("_", ""))


def shortened(block: Block) -> Block:
    """The block with fewer steps (`MOST`), and a `tandem train` with the flags of `NO_MORE`."""

    def fewer(found: re.Match[str]) -> str:
        most = MOST[found[2].replace("-", "_")]
        return f"{found[1]}{found[2]}{found[3]}{min(int(found[4].replace('_', '')), most)}"

    text = NUMBER.sub(fewer, block.text)
    if block.language == "sh":
        text = "".join(_with_flags(line) + "\n" for line in commands(text))
    return replace(block, text=text)


def commands(text: str) -> list[str]:
    """The commands of a sh block; a backslash at the end of a line continues it."""
    return text.replace("\\\n", "").splitlines()


def _with_flags(line: str) -> str:
    words = shlex.split(line, comments=True)
    if words[:2] != ["tandem", "train"] or "--resume" in words:
        return line
    missing = [w for f, v in NO_MORE.items() if f"--{f}" not in words for w in (f"--{f}", v)]
    return shlex.join([*words, *missing, "--no-plots"])


def run(block: Block, folder: Path) -> None:
    """Runs a block in the present folder; AssertionError for a command that fails."""
    if block.language == "python":
        named = re.match(r"# (\w+\.py)\n", block.text)
        program = folder / (named[1] if named else f"line_{block.line}.py")
        program.write_text(block.text, encoding="utf-8")
        runpy.run_path(str(program), run_name="__main__")
        return
    from tandem.cli import main

    for line in commands(block.text):
        program, *arguments = shlex.split(line, comments=True)
        assert program == "tandem", f"{line!r} is no command of tandem; is its block ```console?"
        assert main(arguments) == 0, f"`{line}` failed"


def is_left_out(block: Block, whole: bool) -> bool:
    """Whether a block is not run: without Stable-Baselines3, and on Ray, which takes long."""
    if "stable_baselines3" in block.text and find_spec("stable_baselines3") is None:
        return True
    return "start_all_runners(" in block.text and not whole


@contextmanager
def printed(folder: Path) -> Iterator[Path]:
    """Within it, what this process and its children print goes into a file."""
    file = folder / ".printed"
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)
    with file.open("wb") as opened:
        os.dup2(opened.fileno(), 1)
        os.dup2(opened.fileno(), 2)
    try:
        yield file
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for descriptor, back in zip((1, 2), kept, strict=True):
            os.dup2(back, descriptor)
            os.close(back)


def run_page(page: Path, folder: Path, whole: bool) -> Iterator[dict[str, Any]]:
    """Runs the blocks of a page in `folder`, a new one: what became of each."""
    folder.mkdir()
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.language not in RUN or is_left_out(block, whole):
            continue
        began, error = time.process_time(), None
        try:
            with printed(folder) as file:
                run(block if whole else shortened(block), folder)
            output = file.read_text(encoding="utf-8", errors="replace")
            if whole and (line := missing_line(block.output, output, block.tolerance)):
                raise AssertionError(f"{line!r} is not printed; what is:\n{output}")
        except BaseException:
            error = traceback.format_exc()
        seconds = round(time.process_time() - began, 2)
        yield {"page": page.stem, "line": block.line, "seconds": seconds, "error": error}


def main() -> None:
    """Prints a line of JSON for each block that was run, after whatever the blocks print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument("--whole", action="store_true")
    given = parser.parse_args()
    folder = given.folder.resolve()
    for number, page in enumerate([page.resolve() for page in given.pages]):
        for line in run_page(page, folder / str(number), given.whole):
            print("\n" + json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
