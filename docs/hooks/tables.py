"""Keeps flags in one piece, and lets long names in tables break after dots and underscores, so that
tables fit their pages."""

from __future__ import annotations

import re
from typing import Any

INLINE = re.compile(r"<code>([^<]*)</code>")
FLAG = re.compile(r"(?<![\w-])--?[a-z][\w-]*")
CELL = re.compile(r"<td[^>]*>.*?</td>", re.DOTALL)
CODE = re.compile(r"(<code[^>]*>)([^<\s]{12,})(</code>)")


def _whole_flags(found: re.Match[str]) -> str:
    """Inline code whose flags are not broken after their dashes."""
    text = FLAG.sub(lambda flag: f'<span class="flag">{flag[0]}</span>', found[1])
    return f"<code>{text}</code>"


def _broken(found: re.Match[str]) -> str:
    """A name with places where it may be broken."""
    return found[1] + re.sub(r"([._/=,(])(?=[^<\s])", r"\1<wbr>", found[2]) + found[3]


def on_page_content(html: str, **_: Any) -> str:
    html = INLINE.sub(_whole_flags, html)
    return CELL.sub(lambda cell: CODE.sub(_broken, cell[0]), html)
