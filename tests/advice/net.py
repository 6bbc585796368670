"""Tests that provoke an error and then do what its "Fix:" says.

A site is a call that makes an error of `tandem.errors`, or one of that module's checks (`at_least`,
`one_of`, ...). Its key is "package/file.py:Class.function", and " 2" after it for the second one of
a function. A test provokes the error at a site by `follows`, or has a row for it, a `case`.
Errors that the tests of their own package provoke need none here.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest

from tandem import errors
from tandem.errors import TandemError

SOURCE = Path(errors.__file__).parent
TESTS = Path(__file__).parent.parent
KINDS = {k for k, v in vars(errors).items() if isinstance(v, type) and issubclass(v, TandemError)}
CHECKS = {"at_least", "one_of", "same_shape", "same_shapes"}
KEY = re.compile(r"[a-z_/]+\.py:[A-Za-z_][\w.]*( \d+)?\Z")
ASSIGNED = re.compile(r"\b([a-z_][a-z0-9_]*)=('[^']*'|\([^)]*\)|[-\w.]*\w)")


class Site(NamedTuple):
    """A place in the code that gives advice: its file and its lines."""

    path: Path
    first: int
    last: int


@cache
def sites() -> dict[str, Site]:
    """Every site by its key. `errors.py` has none: what its checks say, their callers are for."""
    found: dict[str, Site] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        if path.name == "errors.py":
            continue
        room, seen = path.relative_to(SOURCE).as_posix(), Counter[str]()
        for function, call in _calls(ast.parse(path.read_text(encoding="utf-8"))):
            if _called(call) in KINDS | CHECKS:
                seen[function] += 1
                nth = f" {seen[function]}" if seen[function] > 1 else ""
                found[f"{room}:{function}{nth}"] = Site(
                    path, call.lineno, call.end_lineno or call.lineno
                )
    return found


def _calls(tree: ast.AST, function: str = "") -> Iterator[tuple[str, ast.Call]]:
    # from top to bottom, each with the name of the function that it stands in
    for node in ast.iter_child_nodes(tree):
        inner = function
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            inner = f"{function}.{node.name}".lstrip(".")
        if isinstance(node, ast.Call):
            yield function, node
        yield from _calls(node, inner)


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _called(call: ast.Call) -> str:
    return getattr(call.func, "id", getattr(call.func, "attr", ""))


def assigned(error: TandemError) -> list[dict[str, Any]]:
    """What each "name=value" of an error's fix says, together; alternatives ("or") apart."""
    found = [dict(ASSIGNED.findall(part)) for part in error.fix.split(" or ")]
    return [{k: _value(text) for k, text in each.items()} for each in found if each]


def quoted(error: TandemError) -> str:
    """The first thing that stands in quotes in an error's fix."""
    return re.findall(r"'([^']+)'", error.fix)[0]


class Advice:
    """What `follows` caught."""

    error: TandemError

    @property
    def fix(self) -> str:
        return self.error.fix

    def assigned(self) -> list[dict[str, Any]]:
        """What the fix says to give."""
        return assigned(self.error)

    def quoted(self) -> str:
        """What stands in quotes there."""
        return quoted(self.error)


@contextmanager
def follows(key: str) -> Iterator[Advice]:
    """Fails unless an error that was made at the site `key` comes out of the block."""
    assert key in sites(), f"{key} is no site; near it: {errors.nearest(key, sites(), 5)}"
    original, made, advice = TandemError.__init__, {}, Advice()

    def noted(self: TandemError, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        frame = sys._getframe(1)
        while frame.f_code.co_filename == errors.__file__:
            frame = frame.f_back
        made[id(self)] = (Path(frame.f_code.co_filename), frame.f_lineno)

    with patch.object(TandemError, "__init__", noted), pytest.raises(TandemError) as caught:
        yield advice
    advice.error = caught.value
    path, line = made.get(id(caught.value), (None, 0))
    reached = [k for k, s in sites().items() if s.path == path and s.first <= line <= s.last]
    assert reached == [key], f"came from {reached or path}, line {line}:\n{caught.value}"
    assert advice.fix


class Case(NamedTuple):
    """`call(**given)` fails at the site `key`; `call(**{**given, **then})`, which is what the fix
    says, works. `says`: words of the fix that `then` goes by. Without `then`, the fix is read, and
    what "name=value" says is tried."""

    key: str
    call: Callable[..., Any]
    given: dict[str, Any]
    says: str = ""
    then: dict[str, Any] | None = None

    def follow(self, **more: Any) -> None:
        """With `more` for every call."""
        with follows(self.key) as advice:
            self.call(**more, **self.given)
        assert self.says in advice.fix, advice.fix
        told = advice.assigned() if self.then is None else [self.then]
        assert told, f"no name=value in {advice.fix!r}"
        for fix in told:
            self.call(**more, **{**self.given, **fix})


def case(key: str, *rest: Any, slow: bool = False) -> Any:
    marks = [pytest.mark.slow] if slow else []
    return pytest.param(Case(key, *rest), id=key.replace("/", "."), marks=marks)


@cache
def named() -> set[str]:
    """The keys that the tests name, read from their source (the net's own tests aside)."""
    return {
        node.value
        for path in TESTS.rglob("*.py")
        if path.name not in ("net.py", "test_net.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and KEY.match(node.value)
    }
