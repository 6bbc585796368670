"""The places in the source where `benchmarks.faults` makes a fault: thirty that faults.toml lists,
and a seeded sample of small mutations over all packages in mutations.csv. Each is found again by
its text, also in a file that has changed or moved."""

from __future__ import annotations

import ast
import copy
import csv
import random
import textwrap
import tokenize
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatch
from hashlib import sha1
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


@dataclass(frozen=True)
class Fault:
    """`new` in the place of `old`, which occurs once in `file`. A mutation is in the function or
    method `scope`, in its line number `row` (counted from 0), which reads `context`, after `at`
    characters; `digest` is that of the function's text."""

    name: str
    file: str
    old: str
    new: str
    kind: str = "listed"
    line: int = 0
    scope: str = ""
    row: int = 0
    at: int = 0
    context: str = ""
    digest: str = ""


class Function(NamedTuple):
    """A function or method, by its name in the file, as in "Class.method"."""

    scope: str
    node: ast.FunctionDef
    digest: str


def sources(root: Path) -> list[str]:
    """The source files below a repository's folder, relative to it."""
    return sorted(p.relative_to(root).as_posix() for p in (root / SOURCE).rglob("*.py"))


def functions(text: str) -> Iterator[Function]:
    """All functions and methods in a file's text, except for those within functions."""
    lines = text.splitlines()

    def within(body: list[ast.stmt], scope: str) -> Iterator[Function]:
        for node in body:
            if isinstance(node, ast.ClassDef):
                yield from within(node.body, f"{scope}{node.name}.")
            elif isinstance(node, ast.FunctionDef):
                own = textwrap.dedent("\n".join(lines[node.lineno - 1 : node.end_lineno]))
                yield Function(f"{scope}{node.name}", node, sha1(own.encode()).hexdigest()[:12])

    return within(ast.parse(text).body, "")


def every_fault() -> list[Fault]:
    """The faults of faults.toml, then those of mutations.csv."""
    listed = tomllib.loads(LISTED.read_text("utf-8"))
    faults = [Fault(name, x["file"], x["old"], x["new"]) for name, x in listed.items()]
    with SAMPLED.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            fields: dict[str, Any] = row | {n: int(row[n]) for n in ("line", "row", "at")}
            faults.append(Fault(**fields))
    return faults


def with_fault(fault: Fault, root: Path) -> tuple[str, str] | None:
    """The file below `root` that has the place of the fault, and its text with the fault; None
    where there is no such place, or it is not the only one."""
    own = [fault.file] if (root / fault.file).is_file() else []
    for files in (own, sources(root)):
        texts = {file: (root / file).read_text("utf-8") for file in files}
        if not fault.scope:
            found = [(file, text) for file, text in texts.items() if fault.old in text]
            if len(found) == 1 and found[0][1].count(fault.old) == 1:
                return found[0][0], found[0][1].replace(fault.old, fault.new)
            continue
        known = [(file, f) for file, text in texts.items() for f in functions(text)]
        places = [x for x in known if x[1].digest == fault.digest][:1]
        places = places or [x for x in known if x[1].scope == fault.scope]
        if len(places) == 1:
            ((file, f),) = places
            lines = texts[file].splitlines()
            rows = range(f.node.lineno - 1, f.node.end_lineno or 0)
            alike = [row for row in rows if lines[row].strip() == fault.context]
            if f.digest == fault.digest or len(alike) == 1:
                row = rows[fault.row] if f.digest == fault.digest else alike[0]
                return file, _replaced(lines, row, fault)
    return None


def _replaced(lines: list[str], row: int, fault: Fault) -> str:
    line = lines[row]
    at = len(line) - len(line.lstrip()) + fault.at
    changed = line[:at] + fault.new + line[at + len(fault.old) :]
    return "\n".join([*lines[:row], changed, *lines[row + 1 :], ""])


def sample(seed: int, count: int) -> None:
    """Draws mutations, in each package in proportion to its logical lines, and writes them to
    mutations.csv."""
    rng, lines = random.Random(seed), defaultdict[str, int](int)
    found, drawn = defaultdict[str, list[Fault]](list), list[Fault]()
    for file in sources(ROOT):
        inner = file.removeprefix(f"{SOURCE}/")
        if any(fnmatch(inner, pattern) for pattern in EXCLUDED):
            continue
        package = inner.partition("/")[0] if "/" in inner else "."
        with (ROOT / file).open("rb") as opened:
            kinds = [token.type for token in tokenize.tokenize(opened.readline)]
        lines[package] += kinds.count(tokenize.NEWLINE)
        found[package] += mutations(file)
    shares = {package: count * n / sum(lines.values()) for package, n in lines.items()}
    quotas = {package: int(share) for package, share in shares.items()}
    rest = sorted(shares, key=lambda package: quotas[package] - shares[package])
    for package in rest[: count - sum(quotas.values())]:
        quotas[package] += 1
    for package, free in found.items():
        while quotas[package]:
            kind = rng.choice(sorted({f.kind for f in free}))  # each as often as any other
            chosen = rng.choice([f for f in free if f.kind == kind])
            free.remove(chosen)
            text = (ROOT / chosen.file).read_text("utf-8")
            changed = _replaced(text.splitlines(), chosen.line - 1, chosen)
            if ast.dump(ast.parse(changed)) != ast.dump(ast.parse(text)):
                drawn.append(replace(chosen, name=f"m{len(drawn):03}"))
                quotas[package] -= 1
    with SAMPLED.open("w", encoding="utf-8", newline="") as opened:
        writer = csv.DictWriter(opened, list(asdict(drawn[0])), lineterminator="\n")
        writer.writeheader()
        writer.writerows(map(asdict, drawn))


def mutations(file: str) -> list[Fault]:
    """Every mutation that can be made within a line of a file's functions."""
    text, found = (ROOT / file).read_text("utf-8"), list[Fault]()
    lines = text.splitlines()
    for f in functions(text):
        for node in _computing(f.node) if f.node.name not in SHOWN else ():
            line = lines[node.lineno - 1]
            start, end = (
                len(line.encode()[:n].decode()) for n in (node.col_offset, node.end_col_offset)
            )
            row, at = node.lineno - f.node.lineno, start - len(line) + len(line.lstrip())
            place: Any = (node.lineno, f.scope, row, at, line.strip(), f.digest)
            found += [Fault("", file, line[start:end], *new, *place) for new in _changes(node)]
    return found


def _computing(node: ast.AST) -> Iterator[Code]:
    """The nodes below this one, of a line each, that compute something: no messages, types or
    docstrings."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _says(child):
                if isinstance(child, Code) and child.lineno == child.end_lineno:
                    yield child
                yield from _computing(child)


def _says(node: ast.AST) -> bool:
    """Whether a node makes a message, or is for type checkers alone; `strict` of zip changes
    nothing in a program that is right."""
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
