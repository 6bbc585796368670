"""The pages of the API reference, made of what the modules' `__all__`s name: mkdocstrings fills
them from the sources, which are read and not imported."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

SOURCE = Path(__file__).resolve().parents[2] / "src"
WITH_INHERITED = {"tandem.agents.rl.RL", "tandem.agents.rl.RL_pytorch", "tandem.WiseRL"}


@dataclass(frozen=True)
class Part:
    """Some names of a module. Without any: its `__all__`, else what it defines that is public."""

    module: str
    names: tuple[str, ...] = ()
    title: str = ""  # of a page with several parts

    def paths(self) -> list[str]:
        """The dotted path of each name."""
        return [f"{self.module}.{name}" for name in self.names or public(self.module)]


@dataclass(frozen=True)
class Page:
    name: str
    title: str
    about: str
    parts: tuple[Part, ...]


def file_of(module: str) -> Path:
    """The file of a module."""
    path = SOURCE.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def public(module: str) -> list[str]:
    """What a module's `__all__` names, in its order; without one, its public functions and classes
    as they stand."""
    tree = ast.parse(file_of(module).read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    kinds = (ast.FunctionDef, ast.ClassDef)
    return [node.name for node in tree.body if isinstance(node, kinds) and node.name[0] != "_"]


def modules(package: str) -> list[str]:
    """The modules of a package, by name."""
    files = sorted(SOURCE.joinpath(*package.split(".")).glob("*.py"))
    return [f"{package}.{file.stem}" for file in files if file.stem != "__init__"]


def algorithms() -> list[str]:
    """The modules of the algorithms: those with names, and those for other kinds of actions."""
    tree = ast.parse(file_of("tandem.algorithms").read_text(encoding="utf-8"))
    tables = {
        ast.unparse(node.targets[0]): ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict)
    }
    other = (module for module, _ in tables["FOR_CHOICES"].values())
    return sorted({*tables["NAMES"], *other})


TRAINER = ("train", "session", "load", "evaluate", "Agent", "Result", "Evaluation")
AFTER = ("Run", "find_runs", "compare", "report", "export", "sweep")
FIND = ("find_lr", "find_optimizer", "find_best")
OWN = ("RL", "RL_pytorch", "LambdaCallback", "assign_param", "restore_param")
FINDERS = ("LRFinder", "OptFinder", "ParallelFinder", "AgentFinder", "parameter_server_strategy")
PAGES = (
    Page(
        "trainer",
        "Trainer",
        "Train an algorithm in an environment; load, evaluate, compare and export agents.",
        (
            Part("tandem", TRAINER),
            Part("tandem", (*AFTER, *FIND), "Read, compare, report, export"),
            Part("tandem.trainer", ("Session", "complete", "resolve"), "Sessions"),
            Part("tandem", ("__version__",), "Version"),
        ),
    ),
    Page(
        "events",
        "Events and callbacks",
        "The events of a run, and callbacks that receive them ([guide](../howto/callbacks.md)).",
        (
            Part("tandem.runs.callbacks", ("Callback", "LambdaCallback", "EarlyStop", "TimeLimit")),
            Part("tandem.learning.events", title="Events"),
        ),
    ),
    Page(
        "agents",
        "Agents",
        "You write the network, the action and the loss ([guide](../advanced/agent.md)).",
        (
            Part("tandem.agents.rl", OWN, "Base classes"),
            Part("tandem", FINDERS, "Finders and strategies"),
        ),
    ),
    Page(
        "cluster",
        "Cluster",
        "Named agents and runners, on Ray or in one process ([guide](../advanced/cluster.md)).",
        (
            Part("tandem", ("Cluster", "WiseRL")),
            Part("tandem.cluster", ("Agent", "AlgorithmAgent", "Runner")),
        ),
    ),
    Page(
        "makers",
        "drlbox names",
        "The functions of drlbox, with its arguments ([guide](../advanced/makers.md)).",
        (Part("tandem", ("make_trainer", "make_evaluator")),),
    ),
    Page(
        "sharing",
        "Sharing and data",
        "Runs on the Hugging Face hub, and data sets of episodes ([guide](../howto/sharing.md)).",
        (
            Part("tandem", ("push", "pull", "record", "datasets")),
            Part("tandem.datasets", ("Dataset", "Episode", "load"), "Data sets"),
        ),
    ),
    Page(
        "extending",
        "Custom algorithms",
        "Everything needed to write an algorithm ([guide](../advanced/extending.md)).",
        (Part("tandem.extending"),),
    ),
    Page(
        "algorithms",
        "Algorithms",
        "The classes behind the names. [Each algorithm's page](../algorithms/options.md) has its "
        "equations and settings.",
        (
            Part("tandem.algorithms"),
            *(Part(f"tandem.algorithms.{name}", title=name) for name in algorithms()),
        ),
    ),
    Page(
        "math",
        "Equations",
        "One function for each equation, for arrays of every backend.",
        tuple(Part(module, title=module.split(".")[-1]) for module in modules("tandem.math")),
    ),
    Page(
        "exploration",
        "Exploration",
        "Exploration policies for discrete actions, and noise for continuous ones.",
        (Part("tandem.exploration"),),
    ),
    Page(
        "environments",
        "Environments",
        "Functions that make environments and vectors of them ([guide](../howto/environments.md)).",
        (Part("tandem.envs.factory"), Part("tandem.functional", title="Functional environments")),
    ),
    Page(
        "planning",
        "Planning",
        "Monte Carlo tree search.",
        (Part("tandem.planning"),),
    ),
    Page(
        "testing",
        "Contract tests",
        "What every algorithm must satisfy ([guide](../advanced/extending.md)).",
        (Part("tandem.testing.contracts"),),
    ),
    Page(
        "errors",
        "Errors",
        "The exceptions of tandem. Each says what happened, what was expected, and how to fix it.",
        (Part("tandem", ("errors",)),),
    ),
)


def text(page: Page) -> str:
    """A page for mkdocstrings."""
    lines = [f"# {page.title}", "", page.about, ""]
    shown = {path for part in page.parts for path in part.paths()}
    for part in page.parts:
        level = 3 if part.title else 2
        if part.title:
            lines += [f"## {part.title}", ""]
            if part.module not in shown and (docstring := about(part.module)):
                lines += [docstring, ""]
        for path in part.paths():
            lines += [f"::: {path}", "    options:", f"      heading_level: {level}"]
            if path in {part.module for part in page.parts}:
                lines.append("      members: false")  # they have a part of their own
            if path in WITH_INHERITED:
                lines.append("      inherited_members: true")
            lines.append("")
    return "\n".join(lines)


def about(module: str) -> str:
    """A module's docstring, where the names of a page are of it alone."""
    if module in ("tandem", "tandem.trainer", "tandem.functional"):
        return ""
    return ast.get_docstring(ast.parse(file_of(module).read_text(encoding="utf-8"))) or ""


def index() -> str:
    """The first page of the reference: every name, with the page that has it."""
    lines = ["# API reference", ""]
    lines += ["Every public name, from the signatures and docstrings of the source.", ""]
    lines += ["| page | names |", "|---|---|"]
    for page in PAGES:
        shown = [path for part in page.parts for path in part.paths()]
        names = ", ".join(f"[`{path.rpartition('.')[2]}`][{path}]" for path in shown)
        lines.append(f"| [{page.title}]({page.name}.md) | {names} |")
    return "\n".join(lines) + "\n"


def on_files(files: Files, config: Any) -> Files:
    files.append(File.generated(config, "reference/index.md", content=index()))
    for page in PAGES:
        files.append(File.generated(config, f"reference/{page.name}.md", content=text(page)))
    return files


NAME = re.compile(r"(?<![\[`$])`((?:\w+\.)+\w+)`(?![\]$])")


@cache
def documented() -> dict[str, str]:
    """What the pages of algorithms call a function or a method -> its place in the reference:
    `math.values.huber`, `algorithms.sac.SAC.actor_loss`, `SAC.actor_loss`."""
    places = {}
    for module in [*modules("tandem.math"), *(f"tandem.algorithms.{a}" for a in algorithms())]:
        names = set(public(module))
        for node in ast.parse(file_of(module).read_text(encoding="utf-8")).body:
            if getattr(node, "name", None) not in names:
                continue
            path = f"{module}.{node.name}"
            places[path.removeprefix("tandem.")] = path
            for member in node.body if isinstance(node, ast.ClassDef) else ():
                if isinstance(member, ast.FunctionDef) and member.name[0] != "_":
                    for called in (path.removeprefix("tandem."), node.name):
                        places[f"{called}.{member.name}"] = f"{path}.{member.name}"
    return places


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """On the pages of algorithms, the names beside equations lead to the reference."""
    if not page.file.src_uri.startswith("algorithms/"):
        return markdown

    def linked(found: re.Match[str]) -> str:
        place = documented().get(found[1])
        return f"[{found[0]}][{place}]" if place else found[0]

    return NAME.sub(linked, markdown)
