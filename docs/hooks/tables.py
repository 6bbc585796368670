"""Lets long names in tables break after dots and underscores, so that tables fit their pages."""

from __future__ import annotations

import re
from typing import Any

CELL = re.compile(r"<td[^>]*>.*?</td>", re.DOTALL)
CODE = re.compile(r"(<code[^>]*>)([^<\s]{12,})(</code>)")


def broken(found: re.Match[str]) -> str:
    """A name with places where it may be broken."""
    return found[1] + re.sub(r"([._/=,(])(?=[^<\s])", r"\1<wbr>", found[2]) + found[3]


def on_page_content(html: str, **_: Any) -> str:
    return CELL.sub(lambda cell: CODE.sub(broken, cell[0]), html)
