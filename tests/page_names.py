"""Which names the pages may use: what the repository has, and what a run makes."""

import ast
import importlib
import re
from collections.abc import Iterator
from dataclasses import fields
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

from tandem import algorithms
from tandem.cli import COMMANDS
from tandem.envs import functions, ids
from tandem.envs.team import FAMILIES
from tandem.learning.config import Options
from tests.helpers import ROOT
from tests.pages import blocks

SOURCE = ROOT / "src" / "tandem"
FOLDERS = [ROOT / name for name in ("src", "tests", "benchmarks", "docs")]
ENDINGS = "py|md|json|csv|png|gif|mp4|svg|zip|toml|txt|safetensors"
FILE = re.compile(rf"[\w.*-]*(/[\w.*-]*)+|[\w.*-]+\.({ENDINGS})")
NAMESPACES = "|".join([*FAMILIES, *ids.NAMESPACES, *functions.FAMILIES, "classic", "FAMILY"])
UNVERSIONED = "brax|gymnax|pgx|playground"  # whose ids end as they like
ENV_ID = re.compile(rf"({NAMESPACES})/(\*|NAME|\w+[-_]v\d+|\*-v\d+)|({UNVERSIONED})/[\w-]+")
# programs whose flags are not ours
OTHER_PROGRAMS = {"docker", "pip", "ray", "pytest", "mypy", "git", "tensorboard"}
# of other libraries
NOT_OURS = {"distributed_training", "ClipAction", "URL"}
NOT_OURS |= {"GLU", "glu", "squareplus", "sparsemax", "AvgPool"}
# of gymnasium.wrappers
NOT_OURS |= {"NormalizeObservation", "RecordEpisodeStatistics", "RecordVideo", "RescaleAction"}
# a table of two libraries: what is in its first column is of the other one
ELSEWHERE = re.compile(r"^\| [\w-]+ \| (?:here|tandem) \|\n(?:\|.*\n)+", re.MULTILINE)
# files of the repository that are neither code nor pages
BESIDE = (".github", "CITATION.cff", "Dockerfile")


def spans(page: str) -> list[str]:
    """What stands in backticks outside the fenced blocks, each on one line; formulas are none."""
    text = re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"\$`[^`]*`\$", "", text)
    text = ELSEWHERE.sub(lambda table: re.sub(r"^\|[^|]*\|", "|", table[0], flags=re.M), text)
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", text)]


def faults(page: str) -> list[str]:
    """The names in a page's text that there are not, with what was looked for."""
    found = [fault for span in spans(page) for fault in span_faults(span, page)]
    for block in blocks(page):
        if block.language in ("sh", "console"):
            for line in block.text.splitlines():
                found += span_faults(line.partition("#")[0].strip(), "")
    own = re.findall(r'^\[project.entry-points."tandem.algorithms"\]\n(\w+) = ', page, re.MULTILINE)
    return [fault for fault in found if not any(f"no algorithm {name}" in fault for name in own)]


def span_faults(span: str, page: str = "") -> Iterator[str]:
    """The same of one span; `page`: where it stands, whose blocks may make the files it names."""
    program = span.split()[0] if span.split() else ""
    if span.partition("/")[0] in BESIDE and (ROOT / span).exists():
        return
    for path in re.findall(r"(?<!/)\btandem(?:\.\w+)+", span):
        if not importable(path):
            yield f"`{span}`: {path} is not in the code"
    for module, names in re.findall(r"from (tandem[\w.]*) import ([\w, ]+)", span):
        for name in re.findall(r"\w+", names):
            if not importable(f"{module}.{name}"):
                yield f"`{span}`: {module} has no {name}"
    wild = re.sub(r"<\w+>|…", "*", span)
    if FILE.fullmatch(wild):
        if not (is_file(wild) or ENV_ID.fullmatch(wild) or in_blocks(wild, page)):
            yield f"`{span}`: no such file or folder, and no run makes it"
    elif name := re.fullmatch(r"([A-Za-z_]\w*(?:\.\w+)*)(\(.*\))?", span):
        if missing := [part for part in name[1].split(".") if part not in words() | NOT_OURS]:
            yield f"`{span}`: {missing[0]} is no name of the code"
        elif name[1].split(".")[0] in rooms() and not importable(f"tandem.{name[1]}"):
            yield f"`{span}`: tandem.{name[1]} is not in the code"
    for module in re.findall(r"python3? -m ([\w.]+)", span):
        if module.split(".")[0] in ("tandem", "benchmarks") and not module_file(module):
            yield f"`{span}`: no module {module}"
    own = re.match(r"tandem train \w+:\w+", span)  # whose flags, too, are of a page's own program
    if program not in OTHER_PROGRAMS and not own:
        for flag in re.findall(r"(?<![\w-])--[a-z][\w-]*", span):
            if flag not in flags():
                yield f"`{span}`: no command has {flag}"
    if (command := re.match(r"tandem ([a-z]\w*)", span)) and command[1] not in COMMANDS:
        yield f"`{span}`: no command {command[1]}"
    algorithm = re.match(r"tandem train ([a-z]\w*)", span)
    if algorithm and not own and algorithm[1] not in algorithms.NAMES:
        yield f"`{span}`: no algorithm {algorithm[1]}"
    if program == "make" or re.match(r"\w+=\S* make ", span):
        yield from _make_faults(span)


def _make_faults(span: str) -> Iterator[str]:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for word in re.sub(r'"[^"]*"', "", span).split():
        variable = re.match(r"([A-Z]+)=", word)
        known = rf"\b{variable[1]}\b" if variable else rf"^{re.escape(word)}:"
        if word != "make" and not re.search(known, makefile, re.MULTILINE):
            yield f"`{span}`: the Makefile has no {word}"


@cache
def words() -> set[str]:
    """Every word of the library, the benchmarks, tests/helpers.py and pyproject.toml."""
    files = [*SOURCE.rglob("*.py"), *(ROOT / "benchmarks").glob("*.py")]
    files += [ROOT / "tests" / "helpers.py", ROOT / "pyproject.toml"]
    words = {word for file in files for word in re.findall(r"\w+", file.read_text("utf-8"))}
    return words | {file.stem for file in files}


@cache
def rooms() -> set[str]:
    return {path.stem for path in SOURCE.iterdir() if not path.stem.startswith("_")}


def module_file(dotted: str) -> Path | None:
    """The file of a module of tandem or benchmarks."""
    parts = dotted.split(".")
    base = (ROOT / "src" if parts[0] == "tandem" else ROOT).joinpath(*parts)
    return next((f for f in (base.with_suffix(".py"), base / "__init__.py") if f.is_file()), None)


@cache
def importable(dotted: str) -> bool:
    """Whether a path leads to a module or what it holds. Examples are programs: they are read."""
    parts = dotted.split(".")
    module = next((n for n in range(len(parts), 0, -1) if module_file(".".join(parts[:n]))), 0)
    name, attributes = ".".join(parts[:module]), parts[module:]
    if name.startswith("tandem.examples."):
        tree = ast.parse(module_file(name).read_text(encoding="utf-8"))
        return not attributes or attributes[0] in {getattr(n, "name", "") for n in tree.body}
    try:
        held: Any = importlib.import_module(name)
        for attribute in attributes:
            held = getattr(held, attribute)
    except AttributeError:
        return False
    return True


@cache
def flags() -> set[str]:
    """Every flag of tandem's commands, of the benchmarks and of the examples."""
    known = {"--help"}
    for settings in (Options, *(algorithms.get(name).Settings for name in algorithms.NAMES)):
        for field in fields(settings):
            flag = field.name.replace("_", "-")
            known |= {f"--{flag}"} | ({f"--no-{flag}"} if field.type in (bool, "bool") else set())
    for path in [*SOURCE.rglob("*.py"), *(ROOT / "benchmarks").glob("*.py")]:
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and getattr(call.func, "attr", "") == "add_argument":
                names = [a.value for a in call.args if isinstance(a, ast.Constant)]
                known |= {name for name in names if str(name).startswith("--")}
                if "BooleanOptionalAction" in ast.unparse(call):
                    known |= {f"--no-{name.removeprefix('--')}" for name in names}
    return known


@cache
def paths() -> tuple[str, ...]:
    """Every file and folder of the repository, beginning and ending with a slash."""
    files = [f for top in FOLDERS for f in top.rglob("*") if "__pycache__" not in f.parts]
    files += [f for f in ROOT.iterdir() if f.is_file()]
    return tuple(f"/{f.relative_to(ROOT).as_posix()}/" for f in files)


@cache
def made_by_runs() -> set[str]:
    """Names of files and folders that the code makes, with * for what is put into them."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
                found.add(_text(node.right))
            elif (text := _text(node)) and FILE.fullmatch(text):
                found.add(text)
    return {text for text in found if len(text.replace("*", "")) > 2}


def _text(node: ast.AST) -> str:
    """A text as it is written, with * for each expression in it; "" for what is no text."""
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(value) or "*" for value in node.values)
    value = node.value if isinstance(node, ast.Constant) else ""
    return value if isinstance(value, str) else ""


def is_file(name: str) -> bool:
    """Whether a file is in the repository, or is one that the code makes. * stands for anything."""
    name = name.strip("/")
    if any(fnmatch(path, f"*/{name}/*") for path in paths()):
        return True
    return any(fnmatch(name.split("/")[-1], text) for text in made_by_runs())


def in_blocks(name: str, page: str) -> bool:
    """Whether one of the page's own blocks names it, and so makes it."""
    return any(name in block.text for block in blocks(page))
