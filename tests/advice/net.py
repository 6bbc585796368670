"""Tests that provoke an error and then do what its "Fix:" says.

A site is a call that makes an error of `tandem.errors`, or one of that module's checks (`at_least`,
`one_of`, ...). Its key is "package/file.py:Class.function", and " 2" after it for the second one of
a function; any end of it that no other has will do. Errors that the tests of their own package
provoke need no test here.
"""

import ast
import contextlib
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest

from tandem import errors
from tandem.errors import TandemError

SOURCE = Path(errors.__file__).parent
KINDS = {k for k, v in vars(errors).items() if isinstance(v, type) and issubclass(v, TandemError)}
CHECKS = {"at_least", "needs", "one_of", "same_shape", "same_shapes"}
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
        file, seen = path.relative_to(SOURCE).as_posix(), Counter[str]()
        for function, call in _calls(ast.parse(path.read_text(encoding="utf-8"))):
            if getattr(call.func, "id", getattr(call.func, "attr", "")) in KINDS | CHECKS:
                seen[function] += 1
                nth = f" {seen[function]}" if seen[function] > 1 else ""
                last = call.end_lineno or call.lineno
                found[f"{file}:{function}{nth}"] = Site(path, call.lineno, last)
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


def assigned(error: TandemError) -> list[dict[str, Any]]:
    """What each "name=value" of an error's fix says, together; alternatives ("or") apart."""
    found = [dict(ASSIGNED.findall(part)) for part in error.fix.split(" or ")]
    return [{k: _value(text) for k, text in each.items()} for each in found if each]


def quoted(error: TandemError) -> str:
    """The first thing that stands in quotes in an error's fix."""
    return re.findall(r"'([^']+)'", error.fix)[0]


class Advice:
    """What `follows` caught: what its fix says, to give (`assigned`) or in quotes (`quoted`)."""

    error: TandemError
    fix = property(lambda self: self.error.fix)

    def assigned(self) -> list[dict[str, Any]]:
        return assigned(self.error)

    def quoted(self) -> str:
        return quoted(self.error)


@contextlib.contextmanager
def follows(key: str) -> Iterator[Advice]:
    """Fails unless an error that was made at the site `key` comes out of the block."""
    ends = ("/" + key, ":" + key, "." + key)
    meant = [key] if key in sites() else [each for each in sites() if each.endswith(ends)]
    assert len(meant) == 1, f"{key}: {meant or errors.nearest(key, sites(), 5)}"
    original, made, advice = TandemError.__init__, {}, Advice()

    def noted(self: TandemError, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        frame = sys._getframe(1)
        while frame.f_code.co_filename in (errors.__file__, contextlib.__file__):
            frame = frame.f_back
        made[id(self)] = (Path(frame.f_code.co_filename), frame.f_lineno)

    with patch.object(TandemError, "__init__", noted), pytest.raises(TandemError) as caught:
        yield advice
    advice.error = caught.value
    path, line = made.get(id(caught.value), (None, 0))
    reached = [k for k, s in sites().items() if s.path == path and s.first <= line <= s.last]
    assert reached == meant, f"came from {reached or path}, line {line}:\n{caught.value}"
    assert advice.fix


def advised(key: str, call: Callable[..., Any], *args: Any, **given: Any) -> Advice:
    """What `call(*args, **given)` is advised, which fails at the site `key`."""
    with follows(key) as advice:
        call(*args, **given)
    return advice


def follow(key: str, call: Any, given: Any, says: Any = "", then: Any = None) -> None:
    """`call(**given)` fails at the site `key`, and its fix has the words `says`; with `then`
    besides, it works. Where `says` is a dict, the fix says all its "name=value", and these work.
    Without `then`, what the fix says so is tried."""
    advice = advised(key, call, **given)
    if isinstance(says, dict):
        then = says
    for words in [f"{n}={x!r}" for n, x in says.items()] if isinstance(says, dict) else [says]:
        assert words in advice.fix, advice.fix
    told = advice.assigned() if then is None else [then]
    assert told, f"no name=value in {advice.fix!r}"
    for fix in told:
        call(**{**given, **fix})


def rows(*table: tuple[Any, ...]) -> Any:
    """Parameters of a test: arguments of `follow`."""
    return pytest.mark.parametrize("row", table, ids=[row[0].replace("/", ".") for row in table])
