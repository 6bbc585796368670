"""How much code there is: `python -m benchmarks.size [ROOT]` prints a table.

Logical lines are the NEWLINE tokens of Python's tokenizer: a statement is one, however it is laid
out. Tokens are all others without comments, docstrings and layout. Tests count in physical lines,
of Python files only, so without the files that earlier commits wrote.
"""

from __future__ import annotations

import io
import sys
import tokenize
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

NEWLINE, STRING = tokenize.NEWLINE, tokenize.STRING
BEGINS = {tokenize.ENCODING, NEWLINE, tokenize.INDENT, tokenize.DEDENT}  # before a statement
LAYOUT = {*BEGINS, tokenize.NL, tokenize.COMMENT, tokenize.ENDMARKER}
# Python 3.12 and later divide f-strings into tokens, which count as one here, as in 3.11.
F_START, F_END = (getattr(tokenize, f"FSTRING_{name}", -1) for name in ("START", "END"))


@dataclass(frozen=True)
class Size:
    files: int = 0
    physical: int = 0
    logical: int = 0
    tokens: int = 0

    def __add__(self, other: Size) -> Size:
        return Size(
            self.files + other.files,
            self.physical + other.physical,
            self.logical + other.logical,
            self.tokens + other.tokens,
        )


def size_of(source: str) -> Size:
    """The size of a file."""
    kinds, inside = [], 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        inside -= token.type == F_END
        if not inside and token.type not in (tokenize.NL, tokenize.COMMENT):
            kinds.append(token.type)
        inside += token.type == F_START
    around = zip([NEWLINE, *kinds], kinds, [*kinds[1:], NEWLINE], strict=False)
    docstrings = sum(
        kind == STRING and before in BEGINS and after == NEWLINE for before, kind, after in around
    )
    starts = kinds.count(F_START) if F_START >= 0 else 0  # each has an end, which was counted too
    tokens = sum(kind not in LAYOUT for kind in kinds) - docstrings - starts
    return Size(1, len(source.splitlines()), kinds.count(NEWLINE), tokens)


def total(files: Iterable[Path]) -> Size:
    """The size of files together."""
    return sum((size_of(file.read_text(encoding="utf-8")) for file in files), Size())


def packages(root: Path) -> dict[str, Size]:
    """The size of each package and each file directly below src/tandem."""
    found: dict[str, list[Path]] = {}
    source = root / "src" / "tandem"
    for file in sorted(source.rglob("*.py")):
        found.setdefault(file.relative_to(source).parts[0].removesuffix(".py"), []).append(file)
    return {name: total(files) for name, files in found.items()}


def table(root: Path) -> str:
    """Everything below a checkout."""
    source = packages(root)
    examples = source.pop("examples", Size())
    library = sum(source.values(), Size())
    largest = sorted(source, key=lambda name: -source[name].logical)
    tests = total((root / "tests").rglob("*.py"))
    rows = {
        **{f"`{name}`": source[name] for name in largest},
        "**src, without examples**": library,
        "`examples`": examples,
        "**src**": library + examples,
        "**benchmarks**": total((root / "benchmarks").rglob("*.py")),
        "**docs**": total((root / "docs").rglob("*.py")),
    }
    lines = ["| part | files | logical lines | tokens | tokens per line |", "|---|--:|--:|--:|--:|"]
    for name, size in rows.items():
        each = size.tokens / max(size.logical, 1)
        lines.append(f"| {name} | {size.files} | {size.logical} | {size.tokens} | {each:.2f} |")
    return "\n".join([*lines, "", f"tests: {tests.physical} physical lines, {tests.files} files"])


if __name__ == "__main__":
    print(table(Path(sys.argv[1] if len(sys.argv) > 1 else ".")))
