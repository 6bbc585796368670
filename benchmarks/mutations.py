"""The places in the source where `benchmarks.faults` makes a fault: thirty that faults.toml lists,
and a seeded sample of small mutations over all packages in mutations.csv. Each is found again by
its text, also in a file that has changed or moved."""

from __future__ import annotations

import ast
import copy
import csv
import random
import tokenize
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
SOURCE = "src/tandem"
LISTED, SAMPLED = Path(__file__).with_name("faults.toml"), Path(__file__).with_name("mutations.csv")
# Examples, and what is planned to go: launched processes, acting without JAX, layers of users'
# networks, ONNX graphs by hand, checkpoints that are folders, completion, systems never tried,
# errors about settings that do nothing.
EXCLUDED = (
    "examples/*", "learning/launch.py", "backends/keras_jax_acting.py",
    "backends/keras_jax_operations.py", "networks/common_layers.py", "networks/*_known.py",
    "networks/onnx*.py", "runs/checkpoint_dir.py", "envs/vector_state.py", "cli/completion.py",
    "cli/shells.py", "platforms.py", "algorithms/unused.py", "zoo/owners.py",
)  # fmt: skip
SHOWN = ("__repr__", "__str__", "_repr_html_")  # functions that only make text
SAYING = ("note", "warn", "echo", "say", "print", "debug", "info", "warning")  # so do these calls
OPPOSITE: dict[str, type[ast.AST]] = {
    "Lt": ast.GtE, "Gt": ast.LtE, "LtE": ast.Lt, "GtE": ast.Gt, "Eq": ast.NotEq, "NotEq": ast.Eq,
    "Is": ast.IsNot, "IsNot": ast.Is, "In": ast.NotIn, "NotIn": ast.In, "And": ast.Or,
    "Or": ast.And, "Add": ast.Sub, "Sub": ast.Add, "Mult": ast.Div, "Div": ast.Mult,
}  # fmt: skip
SWAPPED = {"min": "max", "minimum": "maximum", "all": "any"}
SWAPPED |= {other: name for name, other in SWAPPED.items()}
Code = ast.expr | ast.stmt


class Fault(NamedTuple):
    """`new` in the place of `old`, which occurs once in `file`."""

    name: str
    file: str
    old: str
    new: str
    kind: str = "listed"


def sources(root: Path) -> list[str]:
    """The source files below a repository's folder, relative to it."""
    return sorted(p.relative_to(root).as_posix() for p in (root / SOURCE).rglob("*.py"))


def every_fault() -> list[Fault]:
    """The faults of faults.toml, then those of mutations.csv."""
    listed = tomllib.loads(LISTED.read_text("utf-8"))
    faults = [Fault(name, x["file"], x["old"], x["new"]) for name, x in listed.items()]
    with SAMPLED.open(encoding="utf-8", newline="") as file:
        return faults + [Fault(**row) for row in csv.DictReader(file)]


def with_fault(fault: Fault, root: Path) -> tuple[str, str] | None:
    """The file below `root` that has the place of the fault, and its text with the fault; None
    where there is no such place, or it is not the only one."""
    own = [fault.file] if (root / fault.file).is_file() else []
    for files in (own, sources(root)):
        texts = {file: (root / file).read_text("utf-8") for file in files}
        found = [file for file, text in texts.items() for _ in range(text.count(fault.old))]
        if len(found) == 1:
            return found[0], texts[found[0]].replace(fault.old, fault.new)
    return None


def sample(seed: int, count: int) -> None:
    """Draws mutations, in each package in proportion to its logical lines, and writes them to
    mutations.csv."""
    rng, lines = random.Random(seed), Counter[str]()
    found, drawn = defaultdict[str, list[Fault]](list), list[Fault]()
    for file in sources(ROOT):
        inner = file.removeprefix(f"{SOURCE}/")
        if any(fnmatch(inner, pattern) for pattern in EXCLUDED):
            continue
        package = inner.partition("/")[0] if "/" in inner else "."
        with (ROOT / file).open("rb") as opened:
            kinds = [token.type for token in tokenize.tokenize(opened.readline)]
        lines[package] += kinds.count(tokenize.NEWLINE)
        found[package] += mutations(file, (ROOT / file).read_text("utf-8"))
    shares = {package: count * n / lines.total() for package, n in lines.items()}
    quotas = {package: int(share) for package, share in shares.items()}
    rest = sorted(shares, key=lambda package: quotas[package] - shares[package])
    for package in rest[: count - sum(quotas.values())]:
        quotas[package] += 1
    for package, free in found.items():
        for _ in range(quotas[package]):
            kind = rng.choice(sorted({f.kind for f in free}))  # each as often as any other
            chosen = rng.choice([f for f in free if f.kind == kind])
            free.remove(chosen)
            drawn.append(chosen._replace(name=f"m{len(drawn):03}"))
    with SAMPLED.open("w", encoding="utf-8", newline="") as opened:
        writer = csv.writer(opened, lineterminator="\n")
        writer.writerows([Fault._fields, *drawn])


def mutations(file: str, text: str) -> list[Fault]:
    """Every mutation within a line of a file's functions, where at most three lines above it say
    which line it is."""
    lines, found = text.splitlines(), list[Fault]()
    for node in _computing(ast.parse(text)):
        row, at = node.lineno - 1, slice(node.col_offset, node.end_col_offset)
        line = lines[row].encode()
        for first in range(row, max(row - 4, 0), -1):
            old = "\n".join(["", *lines[first : row + 1], ""])
            if text.count(old) == 1:
                for new, kind in _changes(node):
                    changed = (line[: at.start] + new.encode() + line[at.stop :]).decode()
                    shown = "\n".join(["", *lines[first:row], changed, ""])
                    found.append(Fault("", file, old, shown, kind))
                break
    return found


def _computing(node: ast.AST, inside: bool = False) -> Iterator[Code]:
    """The nodes below this one, of a line each, that compute something in a function: no messages,
    types or docstrings."""
    inside = inside or isinstance(node, ast.FunctionDef)
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _says(child):
                if inside and isinstance(child, Code) and child.lineno == child.end_lineno:
                    yield child
                yield from _computing(child, inside)


def _says(node: ast.AST) -> bool:
    """Whether a node makes a message, or is for type checkers alone; `strict` of zip changes
    nothing in a program that is right."""
    if isinstance(node, ast.FunctionDef):
        return node.name in SHOWN
    if isinstance(node, ast.Return | ast.Expr):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        return is_text or (isinstance(node.value, ast.Call) and _says(node.value))
    if isinstance(node, ast.Call):
        return _name(node) in SAYING or _name(node).endswith(("Error", "Fault"))
    if isinstance(node, ast.If):
        return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    if isinstance(node, ast.keyword):
        return node.arg == "strict"
    return isinstance(node, ast.Raise | ast.JoinedStr)


def _name(call: ast.Call) -> str:
    return str(getattr(call.func, "id", getattr(call.func, "attr", "")))


def _changes(node: Code) -> Iterator[tuple[str, str]]:
    """(code in a node's place, kind) of each mutation."""
    new: ast.Compare | ast.BinOp | ast.BoolOp | ast.AugAssign | ast.Call
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        new = copy.deepcopy(node)
        new.ops = [_opposite(node.ops[0])]
        yield ast.unparse(new), "comparison"
    elif isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op).__name__ in OPPOSITE:
        if not any(
            isinstance(x, ast.Constant) and isinstance(x.value, str) for x in ast.walk(node)
        ):
            new = copy.deepcopy(node)
            new.op = _opposite(node.op)
            yield ast.unparse(new), "operator"
    elif isinstance(node, ast.BoolOp):
        new = copy.deepcopy(node)
        new.op = _opposite(node.op)
        yield f"({ast.unparse(new)})", "and, or"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield f"({ast.unparse(node.operand)})", "not"
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield repr(not node.value), "flag"
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield repr(node.value + 1), "constant"
    elif isinstance(node, ast.Return) and not isinstance(node.value, ast.Constant | None):
        yield "return None", "return"
    elif isinstance(node, ast.Call):
        new = copy.deepcopy(node)
        if (name := SWAPPED.get(_name(node))) is not None:
            setattr(new.func, "id" if isinstance(new.func, ast.Name) else "attr", name)
            yield ast.unparse(new), "function"
        for i, keyword in enumerate(node.keywords):
            if keyword.arg not in (None, "strict"):
                new = copy.deepcopy(node)
                del new.keywords[i]
                yield ast.unparse(new), "argument"
    if (
        isinstance(node, ast.AugAssign)
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call))
        or (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Attribute | ast.Subscript)
        )
    ):
        yield "pass", "statement"


def _opposite(operator: ast.AST) -> Any:
    return OPPOSITE[type(operator).__name__]()
