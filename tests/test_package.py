from __future__ import annotations

import ast
import sys
import tomllib
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
    seen = {
        name.name: statement.module
        for statement in block.body
        if isinstance(statement, ast.ImportFrom)
        for name in statement.names
    }
    assert seen == {
        name: module if attribute else "tandem"
        for name, (module, attribute) in tandem._HOMES.items()
    }


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


def test_the_version_stands_in_one_place() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["dynamic"] == ["version"] and "version" not in project["project"]
    assert project["tool"]["hatch"]["version"]["path"] == "src/tandem/version.py"
    assert len(tandem.__version__.split(".")) == 3
    if (cite := ROOT / "CITATION.cff").exists():  # not in an sdist
        assert f"\nversion: {tandem.__version__}\n" in cite.read_text(encoding="utf-8")
