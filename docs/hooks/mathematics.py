"""Mathematics, $`…`$ in the pages as code hosts have it, as MathML: no script is loaded for it. The
font for it is made here, of the letters and signs that the pages need."""

from __future__ import annotations

import html
import io
import re
import xml.etree.ElementTree as etree
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fontTools import subset
from latex2mathml.converter import convert
from markdown import Extension, Markdown
from markdown.inlinepatterns import InlineProcessor
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
MATHEMATICS = r"\$`([^`\n]+(?:\n[^`\n]+)*)`\$"  # on one line, or broken as text is
FONT = "assets/math.woff"
FONT_FILE = "fonts/STIXTwoMath-Regular.ttf"  # of the package ziamath; SIL Open Font License 1.1


def mathml(latex: str) -> str:
    """A formula as MathML. Raises ValueError for one with a command that is not known."""
    made = convert(" ".join(latex.split()))
    if unknown := re.findall(r">\\\w+<", made):
        raise ValueError(f"{latex!r}: {unknown} is no known command.")
    return made


def letters(text: str) -> set[int]:
    """The characters of the MathML of a page's formulas."""
    made = "".join(mathml(found) for found in re.findall(MATHEMATICS, text))
    shown = html.unescape(re.sub(r"<[^>]*>", "", made))
    italics = "".join(italic(c) for c in shown)  # as browsers show a variable of one letter
    return set(map(ord, shown + italics))


def italic(letter: str) -> str:
    """The mathematical italic of a letter, or the letter."""
    if letter == "h":
        return "\u210e"
    if "a" <= letter <= "z":
        return chr(0x1D44E + ord(letter) - ord("a"))
    if "A" <= letter <= "Z":
        return chr(0x1D434 + ord(letter) - ord("A"))
    if "\u0391" <= letter <= "\u03a9":
        return chr(0x1D6E2 + ord(letter) - 0x391)
    if "\u03b1" <= letter <= "\u03c9":
        return chr(0x1D6FC + ord(letter) - 0x3B1)
    return {"\u03f5": "\U0001d716", "\u03d5": "\U0001d719"}.get(letter, letter)


def font(characters: set[int]) -> bytes:
    """STIX Two Math with no more than these characters and what formulas make of them."""
    package = find_spec("ziamath")
    assert package is not None and package.origin, "pip install -e '.[docs]' brings ziamath"
    options = subset.Options(flavor="woff", layout_features=["*"], notdef_outline=True)
    whole = subset.load_font(str(Path(package.origin).parent / FONT_FILE), options)
    part = subset.Subsetter(options)
    part.populate(unicodes=sorted(characters | set(range(0x20, 0x7F))))
    part.subset(whole)
    out = io.BytesIO()
    subset.save_font(whole, out, options)
    return out.getvalue()


class Formula(InlineProcessor):
    """$`…`$ in a text."""

    def handleMatch(  # type: ignore[override]
        self, m: re.Match[str], data: str
    ) -> tuple[etree.Element | str, int, int]:
        return self.md.htmlStash.store(mathml(m[1])), m.start(0), m.end(0)


class Mathematics(Extension):
    def extendMarkdown(self, md: Markdown) -> None:
        before_code = 195  # `code` has 190
        md.inlinePatterns.register(Formula(MATHEMATICS, md), "mathematics", before_code)


def on_config(config: Any) -> Any:
    config.markdown_extensions.append(Mathematics())
    return config


def on_files(files: Files, config: Any) -> Files:
    pages = [file for file in files if file.is_documentation_page()]
    found = set().union(*(letters(file.content_string) for file in pages))
    files.append(File.generated(config, FONT, content=font(found)))
    return files
