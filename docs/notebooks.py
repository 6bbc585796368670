"""Writes the tutorials as notebooks, docs/tutorials/*.ipynb, from the pages beside them: `python
docs/notebooks.py`. Programs and commands of tandem become code cells; the text between them becomes
Markdown cells. Code cells have no output: an `output` block of the page becomes the text "Expected
output". The tests run the pages' blocks and check that the notebooks match the pages."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

TUTORIALS = Path(__file__).parent / "tutorials"
BLOCK = re.compile(r"^```(python|sh)\n((?:.*\n)*?)```$\n?", re.MULTILINE)
OUTPUT = re.compile(r"(?:<!-- tolerance: \d+% -->\n+)?^```output$", re.MULTILINE)
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def notebook(page: str) -> str:
    """A page as a notebook, format 4.5."""
    cells: list[dict[str, Any]] = []
    last = 0
    for block in BLOCK.finditer(page):
        _text(cells, page[last : block.start()])
        language, code = block[1], block[2]
        if language == "sh":
            code = "".join(f"!{line}\n" for line in code.splitlines())
        _add(cells, "code", code, execution_count=None, outputs=[])
        last = block.end()
    _text(cells, page[last:])
    whole = {"cells": cells, "metadata": METADATA, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def _text(cells: list[dict[str, Any]], text: str) -> None:
    if text.strip():
        _add(cells, "markdown", OUTPUT.sub("Expected output:\n\n```text", text))


def _add(cells: list[dict[str, Any]], kind: str, text: str, **more: Any) -> None:
    source = text.strip().splitlines(keepends=True)
    name = f"{kind}-{len(cells)}"
    cells.append({"cell_type": kind, "id": name, "metadata": {}, **more, "source": source})


def pages() -> list[Path]:
    """The tutorials' pages."""
    return sorted(TUTORIALS.glob("*.md"))


if __name__ == "__main__":
    for path in pages():
        text = notebook(path.read_text(encoding="utf-8"))
        path.with_suffix(".ipynb").write_text(text, encoding="utf-8")
