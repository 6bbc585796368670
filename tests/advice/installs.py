"""What an advice to install something would install."""

from __future__ import annotations

import re
import tomllib

from tests.helpers import ROOT


def installs(fix: str) -> set[str]:
    """The packages that the "pip install" of a fix leads to: those of an extra of tandem's, or the
    one that it names."""
    (what,) = re.findall(r"pip install ['\"]?([-\w]+(?:\[[\w,]+\])?)", fix)[:1]
    name, _, extra = what.rstrip("]").partition("[")
    if not extra:
        return {name}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert name == project["name"]
    extras = project["optional-dependencies"]
    return {re.split(r"[>=<\[; ]", one)[0] for part in extra.split(",") for one in extras[part]}
