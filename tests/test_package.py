import ast
import re
import sys
import tomllib
from itertools import zip_longest
from types import ModuleType

import pytest

import tandem
from tests.helpers import ROOT, run_python


def test_names_are_found_in_their_homes_on_first_use(monkeypatch) -> None:
    home = ModuleType("tandem.trainer")
    home.train = lambda: "trained"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tandem.trainer", home)
    monkeypatch.delitem(vars(tandem), "train", raising=False)
    assert tandem.train() == "trained"
    assert "train" in vars(tandem)  # kept: the next use does not search again
    del vars(tandem)["train"]  # not by monkeypatch, which would put the fake back in the end


def test_type_checkers_see_each_name_where_it_is() -> None:
    """`__getattr__` returns Any, which would be all that a type checker knew."""
    tree = ast.parse((ROOT / "src" / "tandem" / "__init__.py").read_text(encoding="utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    seen = {name.name: node.module for node in imports for name in node.names}
    homes = tandem._HOMES.items()
    assert seen == {name: home if attribute else "tandem" for name, (home, attribute) in homes}


def test_public_names() -> None:
    assert set(tandem.__all__) == {*tandem._HOMES, "__version__"} <= set(dir(tandem))
    with pytest.raises(AttributeError, match="'tandem' has no attribute 'tarin'"):
        _ = tandem.tarin
    # no part of the package may be called like them: importing it would hide the function
    for name in ("train", "load", "evaluate", "Agent", "Result", "Evaluation"):
        assert not (ROOT / "src" / "tandem" / name).exists()
        assert not (ROOT / "src" / "tandem" / f"{name}.py").exists()
    # errors are there without a second import
    shown = run_python("import json, tandem; print(json.dumps(tandem.errors.TandemError.__name__))")
    assert shown == ["TandemError"]


def test_the_version_stands_in_one_place_and_the_lowest_are_the_bounds_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["dynamic"] == ["version"] and "version" not in project["project"]
    assert project["tool"]["hatch"]["version"]["path"] == "src/tandem/version.py"
    assert len(tandem.__version__.split(".")) == 3
    if (cite := ROOT / "CITATION.cff").exists():  # not in an sdist
        assert f"\nversion: {tandem.__version__}\n" in cite.read_text(encoding="utf-8")
    text = (ROOT / "constraints-lowest.txt").read_text(encoding="utf-8")
    pinned = dict(re.findall(r"^([\w.-]+)==(\S+)$", text, re.MULTILINE))
    bounds = lower_bounds()
    assert {"numpy", "gymnasium", "torch", "keras", "jax", "tensorflow-cpu"} <= bounds.keys()
    for name, bound in bounds.items():
        assert name in pinned, f"{name} is not in constraints-lowest.txt"
        assert not bound or same(bound, pinned[name]), (
            f"{name}: pyproject.toml allows {bound}, constraints-lowest.txt has {pinned[name]}"
        )
    assert not [n for n in pinned if n.startswith(("nvidia", "cuda", "triton"))]
    assert [name for name, bound in lower_bounds().items() if not bound] == []


# of these extras nothing is tried: they are large, and little of tandem needs them
UNTRIED = {"mlflow", "onnx-jax", "dev", "hub", "data", "docs"}
# the other extra for the same engine, which may not be installed beside the one that is tried
OTHERS = {"tensorflow", "all"}


def lower_bounds() -> dict[str, str]:
    """The lower bound of each dependency, by its name; "" where there is none."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    lines = [line for name in extras.keys() - UNTRIED - OTHERS for line in extras[name]]
    found: dict[str, str] = {}
    for line in [*project["dependencies"], *lines]:
        requirement = line.partition(";")[0]
        name = re.split(r"[\[<>=; ]", requirement)[0].lower()
        bound = re.search(r">=([\d.]+)", requirement)
        if name not in ("tandem-rl", "tensorflow"):
            found[name] = max(found.get(name, ""), bound[1] if bound else "")
    return found


def same(bound: str, version: str) -> bool:
    """Whether a version is a bound, which may leave out zeros at its end, or a patch level."""
    parts = zip_longest(bound.split("."), version.split("."), fillvalue="0")
    return version == bound or version.startswith(f"{bound}.") or all(a == b for a, b in parts)
