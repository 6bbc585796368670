"""Writes the table of settings into docs/algorithms/*.md, from the settings' dataclasses: `python
docs/settings.py`."""

from __future__ import annotations

from pathlib import Path

from tandem import algorithms
from tandem.settings import declared

PAGES = Path(__file__).parent / "algorithms"
BEGIN, END = "<!-- settings: written by docs/settings.py -->\n", "<!-- end of settings -->\n"


def table(algorithm: str) -> str:
    """Every setting of an algorithm: its flag, default, meaning and source."""
    rows = ["| flag | default | meaning | source of the default |", "|---|---|---|---|"]
    for name, default, meaning, source, _ in declared(algorithms.get(algorithm).Settings):
        shown = ",".join(map(str, default)) if isinstance(default, tuple) else str(default)
        rows.append(f"| `--{name.replace('_', '-')}` | {shown} | {meaning} | {source} |")
    return "\n".join(rows) + "\n"


def renewed(page: str, algorithm: str) -> str:
    """The page with its table as it has to be."""
    before, rest = page.split(BEGIN)
    return before + BEGIN + table(algorithm) + END + rest.split(END)[1]


if __name__ == "__main__":
    for name in algorithms.NAMES:
        path = PAGES / f"{name}.md"
        path.write_text(renewed(path.read_text(encoding="utf-8"), name), encoding="utf-8")
