"""Checks of the architecture: layers of packages, imports of frameworks, sizes, no unpickling."""

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from graphlib import TopologicalSorter

import pytest

from benchmarks.size import packages, total
from tests.helpers import ROOT, run_python

SOURCE = ROOT / "src" / "tandem"


# Lowest layer first. A package is a file or folder of src/tandem, or a folder in NESTED. It imports
# only packages of lower layers, and itself.
NESTED = ("envs/jax", "learning/collect", "learning/parallel", "learning/compiled")
LAYERS: list[set[str]] = [
    {"types", "ops", "spaces", "vector_actions", "errors", "settings"}
    | {"plugins", "version", "platforms", "streams", "terminal"},
    {"math", "workers"},
    {"networks"},
    {"replay", "exploration", "planning"},
    {"backends"},
    {"algorithms"},
    {"envs"},
    {"envs/jax"},
    {"learning/collect"},
    {"learning/parallel"},
    {"learning"},
    {"learning/compiled"},
    {"runs"},
    {"zoo"},
    {"testing"},
    PUBLIC := {"trainer", "agents", "tuning", "cluster", "drlbox", "cli", "extending"}
    | {"reports", "hub", "datasets", "functional"},
    {"__init__"},
    {"examples", "__main__"},
]

# Layers whose packages may import one another: the lowest is one small vocabulary, and public
# packages build on each other.
SHARED_LAYERS: list[set[str]] = [LAYERS[0], PUBLIC]

# Lower packages that must not be imported all the same: an algorithm receives batches, environments
# are independent of learners, and a collector returns what it collected.
KEPT_APART: dict[str, set[str]] = {
    "algorithms": {"replay"},
    "envs": {"algorithms", "backends", "replay"},
    "envs/jax": {"algorithms", "backends", "replay"},
    "learning/collect": {"replay"},
}

# Libraries that may be imported only in these packages (ending in "/") or files, at the top or in a
# function. ops.py chooses functions by the type of their argument, so it imports two of them, but
# only in functions, as a test below checks. drlbox reads Keras's model files.
FRAMEWORK_PACKAGES = ("backends/", "networks/", "examples/")
ONLY_IN: dict[str, tuple[str, ...]] = {
    "torch": (*FRAMEWORK_PACKAGES, "ops.py"),
    "tensorflow": FRAMEWORK_PACKAGES,
    "jax": (*FRAMEWORK_PACKAGES, "envs/jax/", "learning/compiled/"),
    "keras": (*FRAMEWORK_PACKAGES, "ops.py", "drlbox/own_networks.py"),
    "ray": ("workers/ray.py", "cluster/"),
    "optuna": ("tuning/",),
    "huggingface_hub": ("hub/",),
    "minari": ("datasets/",),
}

# Files that load a module of a higher layer, by `import_module` and this name, when it is needed:
# functional environments, for example, are recognized in a lower layer than they are created in.
LATE: dict[str, str] = {
    "envs/functions.py": "tandem.envs.jax.names",
    "learning/collect/trained_agent.py": "tandem.reports.animation",  # what `Agent.play` shows
    "testing/engine_checks.py": "tandem.trainer",  # the self-test trains as users do
}

# Loading a file must never run code that is in it.
UNPICKLERS = {"pickle", "_pickle", "dill", "joblib", "shelve", "marshal"}

NOT_ON_IMPORT = (*ONLY_IN, "matplotlib")

IMPORT_SECONDS = 0.3
FUNCTION_LINES = 80  # without its signature and docstring

# Class names that two public APIs have: `tandem.Agent` and `tandem.cluster.Agent`,
# `tandem.LambdaCallback` and `tandem.runs.callbacks.LambdaCallback`.
TWICE = {"Agent", "LambdaCallback"}

# Logical lines of each package (`python -m benchmarks.size`). A number may only be lowered, except
# by a new capability, whose lines are agreed on beforehand.
BUDGETS: dict[str, int] = {
    "errors": 162,
    "ops": 167,
    "platforms": 189,
    "plugins": 113,
    "settings": 315,
    "spaces": 255,
    "streams": 63,
    "terminal": 43,
    "types": 84,
    "vector_actions": 76,
    "version": 2,
    "math": 1106,
    "networks": 2646,
    "exploration": 245,
    "planning": 143,
    "replay": 1485,
    "backends": 4418,
    "algorithms": 3610,
    "envs": 4026,
    "functional": 3,
    "workers": 680,
    "learning": 4659,
    "runs": 3306,
    "zoo": 392,
    "testing": 1523,
    "agents": 3152,
    "cli": 2635,
    "cluster": 1692,
    "datasets": 342,
    "drlbox": 450,
    "extending": 17,
    "hub": 364,
    "reports": 1151,
    "trainer": 233,
    "tuning": 2116,
    "__init__": 41,
    "__main__": 12,
}
TEST_LINES = 49_676  # physical, of all tests
SPARE = 20  # lines that a package may be below its budget; of large ones, a hundredth

# --- the checker: from a file's path below src/tandem and its source to a list of faults ----------


def package_of(path: str) -> str:
    """Of a file, or of a module with slashes for dots."""
    nested = (name for name in NESTED if f"{path}/".startswith(f"{name}/"))
    return next(nested, path.split("/")[0].removesuffix(".py"))


def imports(path: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of every import, made absolute, and of `import_module("…")`."""
    package = ["tandem", *path.split("/")[:-1]]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*start, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{source}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and _name(node.func) in ("import_module", "__import__"):
            for target in node.args[:1]:
                if isinstance(target, ast.Constant) and isinstance(target.value, str):
                    yield node.lineno, target.value


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def arrow_faults(path: str, tree: ast.Module) -> list[str]:
    """Imports of packages in the same or a higher layer, and of those in KEPT_APART."""
    here, layer_of = package_of(path), {name: i for i, names in enumerate(LAYERS) for name in names}
    if here not in layer_of:
        return [f"{path}: the package {here!r} has no layer; add it to LAYERS"]
    found = []
    for line, name in imports(path, tree):
        parts = name.split(".")
        if parts[0] != "tandem" or name == LATE.get(path):
            continue
        there = package_of("/".join(parts[1:]))
        there = there if there in layer_of else "__init__"
        shared = any(here in layer and there in layer for layer in SHARED_LAYERS)
        if there != here and not shared and layer_of[there] >= layer_of[here]:
            found.append(f"{path}:{line}: {here} imports {name}, which is not below it")
        elif there in KEPT_APART.get(here, ()):
            found.append(f"{path}:{line}: {here} imports {name}, which it must not know")
    return found


def library_faults(path: str, tree: ast.Module) -> list[str]:
    """Frameworks and other libraries outside their packages."""
    return [
        f"{path}:{line}: imports {name}; only {', '.join(ONLY_IN[library])} may"
        for line, name in imports(path, tree)
        if (library := name.split(".")[0]) in ONLY_IN and not _within(path, ONLY_IN[library])
    ]


def _within(path: str, places: tuple[str, ...]) -> bool:
    return any(path.startswith(place) if place.endswith("/") else path == place for place in places)


def pickle_faults(path: str, tree: ast.Module) -> list[str]:
    """What would run code in a file: pickle and its kin, torch.load, NumPy's allow_pickle."""
    found = [
        f"{path}:{line}: imports {name}"
        for line, name in imports(path, tree)
        if name.split(".")[0] in UNPICKLERS or name == "torch.load"
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == "load" and _name(node.value) == "torch":
            found.append(f"{path}:{node.lineno}: torch.load")
        elif isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            trusted = ast.unparse(node.value) != "False"
            found += [f"{path}:{node.lineno}: allow_pickle"] * trusted
    return found


def size_faults(path: str, tree: ast.Module) -> list[str]:
    """Functions that have grown too long."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[1 if ast.get_docstring(node) and len(node.body) > 1 else 0]
            lines = (node.end_lineno or node.lineno) - first.lineno + 1
            if lines > FUNCTION_LINES:
                told = f"{node.name} has {lines} lines, more than {FUNCTION_LINES}"
                found.append(f"{path}:{node.lineno}: {told}")
    return found


CHECKS: dict[str, Callable[[str, ast.Module], list[str]]] = {
    check.__name__: check for check in (arrow_faults, library_faults, pickle_faults, size_faults)
}


# --- the code -------------------------------------------------------------------------------------


@pytest.mark.parametrize("check", CHECKS)
def test_the_architecture_is_kept(check) -> None:
    files = {file.relative_to(SOURCE).as_posix(): file for file in sorted(SOURCE.rglob("*.py"))}
    assert len(files) > 10, f"found {len(files)} files in {SOURCE}: looking in the wrong place?"
    trees = {path: ast.parse(file.read_text(encoding="utf-8")) for path, file in files.items()}
    found = [fault for path, tree in trees.items() for fault in CHECKS[check](path, tree)]
    assert not found, "\n" + "\n".join(found)


def test_no_modules_import_one_another_in_a_circle() -> None:
    """Nor in functions; for types, and by `import_module`, they may."""
    graph: dict[str, set[str]] = {}
    for file in SOURCE.rglob("*.py"):
        tree, path = ast.parse(file.read_text(encoding="utf-8")), file.relative_to(SOURCE.parent)
        for node in ast.walk(tree):
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                node.body = [ast.Pass()]
            elif isinstance(node, ast.Call):
                node.args = []
        name = path.as_posix().removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        graph[name] = {name for _, name in imports(path.as_posix(), tree)}
    for name, found in graph.items():
        known = {x if x in graph else x.rpartition(".")[0] for x in found}
        graph[name] = (known & graph.keys()) - {name}
    TopologicalSorter(graph).prepare()


def test_each_class_has_a_name_of_its_own() -> None:
    files = [p for p in SOURCE.rglob("*.py") if (SOURCE / "examples") not in p.parents]
    nodes = (node for p in files for node in ast.walk(ast.parse(p.read_text(encoding="utf-8"))))
    counts = Counter(node.name for node in nodes if isinstance(node, ast.ClassDef))
    assert {name for name, count in counts.items() if count > 1} == TWICE


def test_packages_stay_within_their_budgets() -> None:
    sizes = {name: size.logical for name, size in packages(ROOT).items() if name != "examples"}
    assert budget_faults(sizes) == []
    assert total((ROOT / "tests").rglob("*.py")).physical <= TEST_LINES


def budget_faults(sizes: dict[str, int]) -> list[str]:
    """Packages over their budget, without one, or so far below that it has to be lowered."""
    found = []
    for name in sorted({*sizes, *BUDGETS}):
        lines, budget = sizes.get(name, 0), BUDGETS.get(name, 0)
        if lines > budget:
            found.append(f"{name} has {lines} logical lines, more than {budget}: shorten it")
        elif lines < budget - max(SPARE, budget // 100) or lines == 0:
            found.append(f"{name} has {lines} logical lines, {budget} before: lower its budget")
    return found


def test_a_budget_that_is_exceeded_or_too_high_is_found() -> None:
    lowered = BUDGETS["math"] - max(SPARE, BUDGETS["math"] // 100)
    assert budget_faults(BUDGETS | {"math": lowered}) == []
    (above,) = budget_faults(BUDGETS | {"math": BUDGETS["math"] + 1})
    assert "math has" in above and "shorten it" in above
    (below,) = budget_faults(BUDGETS | {"math": lowered - 1})
    assert "lower its budget" in below
    assert "shorten" in budget_faults(BUDGETS | {"attic": 1})[0]
    assert "lower" in budget_faults({n: b for n, b in BUDGETS.items() if n != "version"})[0]


IMPORT_SECONDS_AND_LIBRARIES = f"""
    import importlib, json, sys, time
    began = time.perf_counter()
    for name in sys.argv[1:]:
        importlib.import_module(name)
    seconds = time.perf_counter() - began
    print(json.dumps([seconds, [name for name in {NOT_ON_IMPORT!r} if name in sys.modules]]))
"""


def test_import_tandem_is_quick_and_imports_no_framework() -> None:
    runs = [run_python(IMPORT_SECONDS_AND_LIBRARIES, "tandem")[0] for _ in range(5)]
    assert runs[0][1] == []
    assert min(seconds for seconds, _ in runs) < IMPORT_SECONDS


def test_importing_any_package_imports_no_framework() -> None:
    """Workers import the actor and the collector: a framework is imported only when it is used."""
    paths = (file.relative_to(SOURCE).as_posix() for file in sorted(SOURCE.rglob("*.py")))
    uses = (*ONLY_IN["jax"], *ONLY_IN["ray"], "__main__.py")
    quiet = [p for p in paths if not _within(p, uses)]
    names = [p.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for p in quiet]
    modules = [f"tandem.{name}" for name in names if name != "__init__"]
    ((_, brought),) = run_python(IMPORT_SECONDS_AND_LIBRARIES, *modules)
    assert brought == []


# --- the checker itself ---------------------------------------------------------------------------

OF_ARROWS = [
    ("math/returns.py: from tandem.replay import ring", "math imports tandem.replay.ring, which"),
    ("math/returns.py: from ..networks.mlp import Dense", "math imports tandem.networks.mlp.Dense"),
    ("math/deep/gae.py: from ... import learning", "math imports tandem.learning"),
    ("replay/ring.py: def f():\n    import tandem.exploration.noise", ":2: replay imports tandem."),
    ("spaces.py: from tandem import math", "spaces imports tandem.math"),
    ("learning/loop.py: import tandem", "learning imports tandem, which is not below it"),
    ("learning/loop.py: from tandem import train", "learning imports tandem.train, which is not"),
    (
        "learning/collect/actor.py: import_module('tandem.trainer')",
        "learning/collect imports tandem.trainer",
    ),
    ("testing/envs.py: from tandem.trainer import train", "testing imports tandem.trainer.train"),
    ("algorithms/dqn.py: from tandem.replay.sumtree import SumTree", "which it must not know"),
    ("learning/collect/collector.py: from tandem import replay", "which it must not know"),
    ("envs/factory.py: import_module('tandem.envs.jax.names')", "names, which is not below it"),
    ("envs/functions.py: import_module('tandem.envs.jax.view')", "view, which is not below it"),
    ("attic/old.py: ", "the package 'attic' has no layer"),
]
OF_LIBRARIES = [
    ("algorithms/dqn.py: import torch.nn.functional as F", "dqn.py:1: imports torch.nn.functional"),
    ("replay/ring.py: def f(x):\n    from keras import ops", "ring.py:2: imports keras.ops"),
    ("learning/collect/actor.py: importlib.import_module('jax.numpy')", "imports jax.numpy"),
    ("learning/parallel/pool.py: import ray", "only workers/ray.py, cluster/ may"),
]
OF_PICKLE = [
    ("runs/checkpoint.py: import pickle", "imports pickle"),
    ("runs/checkpoint.py: from pickle import loads", "imports pickle.loads"),
    ("backends/torch.py: torch.load(path)", "torch.load"),
    ("backends/torch.py: from torch import load", "imports torch.load"),
    ("replay/ring.py: np.load(path, allow_pickle=True)", "allow_pickle"),
    ("replay/ring.py: np.load(path, allow_pickle=trusted)", "allow_pickle"),
]
LINES = "    x = 1\n"


@pytest.mark.parametrize(
    "check, place, expected",
    [
        *(("arrow_faults", *row) for row in OF_ARROWS),
        *(("library_faults", *row) for row in OF_LIBRARIES),
        *(("pickle_faults", *row) for row in OF_PICKLE),
        ("size_faults", f"math/returns.py: def f():\n{81 * LINES}", "f has 81 lines"),
    ],
)
def test_a_fault_is_found(check, place, expected) -> None:
    path, _, source = place.partition(": ")
    (fault,) = CHECKS[check](path, ast.parse(source))
    assert expected in fault


def test_a_slow_or_heavy_import_would_be_noticed(tmp_path) -> None:
    slow = "import time, sys\ntime.sleep(0.35)\nsys.modules['torch'] = time"
    (tmp_path / "tandem.py").write_text(slow)
    env = {"PYTHONPATH": str(tmp_path)}
    ((seconds, heavy),) = run_python(IMPORT_SECONDS_AND_LIBRARIES, "tandem", env=env)
    assert seconds > IMPORT_SECONDS and heavy == ["torch"]
