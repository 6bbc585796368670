"""The text that users read has none of the phrases in banned_phrases.txt."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers import ROOT

HERE = Path(__file__).parent
NOT_SEARCHED = {ROOT / "docs" / "contributors" / "design.md"}
GENERATED = re.compile(r"<!-- (\w+): written by .*?<!-- end of \1 -->", re.DOTALL)
CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)


def listed(name: str) -> list[str]:
    """The lines of a list beside this file."""
    lines = (HERE / name).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


BANNED = listed("banned_phrases.txt")
ALLOWED = {tuple(line.split(": ", 2)) for line in listed("allowed_phrases.txt")}


def files() -> list[Path]:
    """The files that are searched."""
    found = [ROOT / f"{name}.md" for name in ("README", "CHANGELOG", "SECURITY")]
    found += [*(ROOT / "docs").rglob("*.md"), *(ROOT / "docs").rglob("*.ipynb")]
    return sorted(set(found) - NOT_SEARCHED)


def prose(file: Path) -> str:
    """A file's text without code and generated tables, with lines where they are in the file."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        text = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    if file.name == "CHANGELOG.md":
        text = "\n## ".join(text.split("\n## ")[:2])
    for pattern in (GENERATED, CODE):
        text = pattern.sub(lambda found: "\n" * found[0].count("\n") or " ", text)
    return text


def found(text: str, phrases: list[str]) -> Iterator[tuple[str, int]]:
    """Each banned phrase in a text, with the number of its line."""
    for phrase in phrases:
        words = r"\s+".join(map(re.escape, phrase.split()))
        end = r"\b" if phrase[-1].isalnum() else ""
        for match in re.finditer(rf"\b{words}{end}", text, re.IGNORECASE):
            yield phrase, text.count("\n", 0, match.start()) + 1


@pytest.mark.parametrize("file", files(), ids=lambda file: file.relative_to(ROOT).as_posix())
def test_pages_have_no_banned_phrase(file: Path) -> None:
    name, text = file.relative_to(ROOT).as_posix(), prose(file)
    lines = [line.strip() for line in text.splitlines()]
    used = [(name, phrase, lines[line - 1]) for phrase, line in found(text, BANNED)]
    assert not [use for use in used if use not in ALLOWED]


def test_exceptions_are_needed_and_phrases_are_found_across_lines_and_not_in_code() -> None:
    for name, phrase, line in ALLOWED:
        assert line in {x.strip() for x in prose(ROOT / name).splitlines()}, (name, line)
        assert phrase in BANNED
    text = "It goes\non. `it goes on`\n\n```text\ngoes on\n```\n"
    assert list(found(CODE.sub(" ", text), ["goes on"])) == [("goes on", 1)]
    assert not list(found("amended, recommend", ["mend"]))
