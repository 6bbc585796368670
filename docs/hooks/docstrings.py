"""How docstrings are read for the reference: a line that begins with the names of arguments or
fields and a colon describes them, which Google's style writes under "Args:".

    algorithm: a name, or a class that derives from `tandem.Algorithm`.
    steps: the run's length in environment steps; stop_at ends this sitting earlier.

Nothing of the docstrings themselves changes: a description that stands in them is moved below the
text, argument by argument.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

ITEM = re.compile(r"^((?:[*]*\w+)(?:, [*]*\w+)*): (.*)$")


PAGE = re.compile(r"\bdocs/([\w/-]+)\.md\b")  # a page that a docstring names


def linked(text: str) -> str:
    """A docstring in which the pages that it names are links."""
    return PAGE.sub(lambda found: f"[{found[1]}](../{found[1]}.md)", text)


def arranged(text: str, names: set[str], heading: str) -> str:
    """A docstring with what describes `names` as a section of Google's style."""
    called = "|".join(sorted(map(re.escape, names), reverse=True))
    if called:  # several on a line: "out: the folder. resume: another"
        text = re.sub(rf"(?<=[.;]) (?=(?:{called})(?:, (?:{called}))*: )", "\n", text)
    kept: list[str] = []
    items: list[list[str]] = []
    item: list[str] | None = None
    for line in text.splitlines():
        found = ITEM.match(line)
        described = found and {n.strip("*") for n in found[1].split(", ")}
        if found and described and described <= names:
            item = [found[1], found[2]]
            items.append(item)
        elif not line.strip():
            item = None
            kept.append(line)
        elif item is not None and not re.match(r"(Returns|Raises) ", line):
            item.append(line.strip())
        else:
            item = None
            kept.append(line)
    if not items:
        return text
    section = [heading]
    for called, *lines in items:
        for name in called.split(", "):
            section.append(f"    {name.strip('*')}: {lines[0]}")
            section += [f"        {line}" for line in lines[1:]]
    body = re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip()
    return "\n".join([body, "", *section])


class Arguments(griffe.Extension):
    """Arranges the docstrings of functions and classes."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        if func.docstring:
            names = {p.name.strip("*") for p in func.parameters} - {"self", "cls"}
            func.docstring.value = linked(arranged(func.docstring.value, names, "Args:"))

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        if cls.docstring:
            # docs/advanced/agent.md describes the attributes of agents
            if cls.path.startswith("tandem.agents."):
                for name, member in list(cls.members.items()):
                    if member.is_attribute and not member.docstring:
                        del cls.members[name]
            own = {name for name, member in cls.members.items() if member.is_attribute}
            made = cls.members.get("__init__")
            names = own | (
                {p.name for p in made.parameters} if made and made.is_function else set()
            )
            heading = "Attributes:" if own else "Args:"
            cls.docstring.value = linked(arranged(cls.docstring.value, names - {"self"}, heading))
