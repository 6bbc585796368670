"""Where lines break: flags, names with dashes, values with their deviations, and formulas with the
punctuation beside them stay in one piece. Long names can break after dots and underscores, in
tables and headings earlier than in text."""

from __future__ import annotations

import re
from typing import Any

PIECE = re.compile(r"<pre\b.*?</pre>|<math\b.*?</math>|<[^>]*>|[^<]+", re.DOTALL)
FLAG = re.compile(r"(?<![\w-])--?[a-z][\w-]*")
FORMULA = re.compile(r"(\(?)(<math\b(?:(?!<math\b).)*?</math>)([,.;:)]*)", re.DOTALL)
DEVIATION = re.compile(r"(?<=[\d…]) ± (?=[\d…])")
LONGEST, LONGEST_IN_CELL = 30, 19  # characters of inline code that stay in one piece


def _whole(text: str) -> str:
    return f'<span class="flag">{text}</span>'


def _code(word: str, longest: int) -> str:
    """A word of inline code."""
    if FLAG.search(word):
        return FLAG.sub(lambda flag: _whole(flag[0]), word)
    if len(word) > longest:
        return re.sub(r"([._/=,(])(?=\S{4})", r"\1<wbr>", word)
    return _whole(word) if "-" in word else word


def on_page_content(html: str, **_: Any) -> str:
    inside: set[str] = set()
    made = []
    html = FORMULA.sub(lambda f: _whole(f[0]) if f[1] or f[3] else f[0], html)
    for piece in PIECE.findall(html):
        if tag := re.match(r"<(/?)(code|td|h[1-6])\b", piece):
            (inside.discard if tag[1] else inside.add)(tag[2])
        elif piece[0] != "<" and "code" in inside:
            longest = LONGEST if inside == {"code"} else LONGEST_IN_CELL
            piece = re.sub(r"\S+", lambda word, n=longest: _code(word[0], n), piece)
        elif piece[0] != "<":
            piece = DEVIATION.sub("\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}", piece)
            piece = re.sub(r"(?<![\w-])--[a-z][\w-]*", lambda flag: _whole(flag[0]), piece)
        made.append(piece)
    return "".join(made)
