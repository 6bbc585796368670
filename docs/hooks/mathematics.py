"""Mathematics, $`…`$ in the pages as code hosts have it, as MathML: no script is loaded for it. The
font for it is made here, of the letters and signs that the pages need."""

from __future__ import annotations

import html
import io
import re
import xml.etree.ElementTree as ET
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
    made = convert(" ".join(latex.split())).replace(
        ' xmlns="http://www.w3.org/1998/Math/MathML"', ""
    )
    if unknown := re.findall(r">\\\w+<", made):
        raise ValueError(f"{latex!r}: {unknown} is no known command.")
    for written, meant in MEANT.items():
        made = made.replace(written, meant)
    made = re.sub(r'<mover>(<mi>[^<]*</mi>)<mo stretchy="true">&#x000AF;', BAR, made)
    made = re.sub(r"<mo>([A-Za-z]{2,})</mo>", r"<mi>\1</mi>", made)  # max is a name, as log is
    letter = '<mi mathvariant="normal">([A-Za-z])</mi>'
    made = re.sub(f"(?:{letter}){{2,}}", lambda m: f"<mi>{re.sub('<[^>]*>', '', m[0])}</mi>", made)
    formula = ET.fromstring(made)
    for row in list(formula.iter()):
        if row.tag in ("math", "mrow", "mstyle", "msqrt"):
            _space(row)
    return "<wbr>".join(ET.tostring(part, encoding="unicode") for part in _parts(formula))


LONG = 16  # operands and operators, from which on a formula may be broken
BREAK_AFTER = set("=\u2190\u2248\u221d\u223c\u2264\u2265+\u2212\u00b7")


def _parts(formula: ET.Element) -> list[ET.Element]:
    """A formula, in parts that may stand on lines of their own where it is a long one: browsers
    break none by themselves. Each part but the last ends with its operator, as TeX breaks."""
    (row,) = formula
    if row.tag != "mrow" or len(row) < LONG:
        return [formula]
    parts: list[list[ET.Element]] = [[]]
    for cell in row:
        parts[-1].append(cell)
        before = parts[-1][-2] if len(parts[-1]) > 1 else None
        binary = before is not None and (before.tag != "mo" or before.text in (")", "]"))
        if cell.tag == "mo" and cell.text in BREAK_AFTER and binary:
            cell.set("form", "infix")
            parts.append([])
    made = []
    for cells in filter(None, parts):
        part = ET.Element("math", formula.attrib)
        ET.SubElement(part, "mrow").extend(cells)
        made.append(part)
    return made


BAR = r'<mover accent="true">\1<mo stretchy="false">&#x000AF;'
MEANT = {  # what the converter writes -> what is meant
    "<mi>&#x0007E;</mi>": "<mo>&#x0223C;</mo>",  # distributed as: a relation, with space around it
    "<mo>&#x0005E;</mo>": '<mo stretchy="false">&#x002C6;</mo>',
    "<mi>&#x02032;</mi>": "<mo>&#x02032;</mo>",
    "<mo>&#x0007C;</mo>": '<mo stretchy="false" lspace="0" rspace="0">&#x0007C;</mo>',  # of |x|
    "<mo>&#x02016;</mo>": '<mo stretchy="false" lspace="0" rspace="0">&#x02016;</mo>',  # of a norm
    "<mo>&#x0002F;</mo>": '<mo lspace="0" rspace="0">&#x0002F;</mo>',
}


def _space(row: ET.Element) -> None:
    """Puts thin spaces around the names of functions in a row, as TeX has them: after an operand,
    and before one that is in no brackets."""
    cells, spaced = list(row), []
    for i, cell in enumerate(cells):
        if cell.text == "\u2212" and i and cells[i - 1].text in (",", "(", "["):
            cell.set("form", "prefix")  # of a negative number
        if _is_name(cell) and i and (cells[i - 1].tag not in ("mo", "mspace")):
            spaced.append(ET.Element("mspace", width="0.167em"))
        spaced.append(cell)
        if _is_name(cell) and i + 1 < len(cells) and cells[i + 1].tag not in ("mo", "mspace"):
            spaced.append(ET.Element("mspace", width="0.167em"))
    for cell in cells:
        row.remove(cell)
    row.extend(spaced)


def _is_name(cell: ET.Element) -> bool:
    if cell.tag in ("msub", "msup", "msubsup", "munder"):
        return _is_name(cell[0])
    return cell.tag == "mi" and cell.text is not None and bool(re.match("[A-Za-z]{2}", cell.text))


def letters(text: str) -> set[int]:
    """The characters of the MathML of a page's formulas."""
    made = "".join(mathml(found) for found in re.findall(MATHEMATICS, text))
    shown = html.unescape(re.sub(r"<[^>]*>", "", made))
    italics = "".join(italic(c) for c in shown)  # as browsers show a variable of one letter
    roots = "\N{SQUARE ROOT}" * ("<msqrt" in made)
    return set(map(ord, shown + italics + roots))


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
    options.name_IDs = ["*"]  # whose it is, and its licence
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
    ) -> tuple[ET.Element | str, int, int]:
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
