"""Runners: whoever has environments, acts in them and brings agents what came of it."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from tandem.cluster import local, proxy
from tandem.cluster.copies import writable
from tandem.errors import SettingError


class Placed(type):
    """Classes whose objects, where they are simply made, live in this process, with their
    agents."""

    def __call__(cls, *given: Any, **named: Any) -> Any:
        new: Any = cls.__new__
        made = new(cls, *given, **named)
        if isinstance(made, cls):
            made.rank = made.local_rank = 0
            with local.living(made):
                made.__init__(*given, **named)
        return made


class Runner(metaclass=Placed):
    """The base of runners: `__init__(self)`, `(self, args)` or `(self, args, local_rank)`, and
    `run`, which does everything.

    `rank` is its number among all runners of a cluster, `local_rank` that among those of its name;
    both are there in `__init__` already, and 0 for a runner that is made directly: it lives in this
    process, and so do the agents that it makes.
    """

    rank: int = 0
    local_rank: int = 0
    _proxies: list[Any] | None = None  # of one that lives in this process

    def __new__(cls, *given: Any, **named: Any) -> Any:
        return super().__new__(cls)

    def __init__(self, args: Any = None, local_rank: int = 0) -> None:
        self.args, self.local_rank = args, local_rank

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        if "run" in cls.__dict__:
            cls.run = _here(cls.__dict__["run"])  # type: ignore[method-assign]

    def run(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no run().")


def _here(run: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(run)
    def wrapped(self: Any) -> Any:
        if self._proxies is None or local.here():
            return run(self)
        return local.run(self)

    return wrapped


def plain_class(runner_class: Any) -> Any:
    """The user's class, where it was decorated by ray.remote."""
    metadata = getattr(runner_class, "__ray_metadata__", None)
    return runner_class if metadata is None else metadata.modified_class


def construct(runner_class: Any, args: Any, rank: int, local_rank: int, here: bool = False) -> Any:
    """A runner with its ranks, made by as many of (args, local_rank) as its `__init__` takes;
    without args where it needs none.
    here: its agents live in this process, too. SettingError where it takes none and there are
      some, or takes more."""
    cls = plain_class(runner_class)
    if not isinstance(cls, type) or not callable(getattr(cls, "run", None)):
        raise SettingError(
            f"{cls!r} as a runner.",
            "a class with a method run()",
            "give the class itself, no object of it.",
        )
    given, named = _arguments(cls, args, local_rank)
    new: Any = cls.__new__
    made = new(cls)
    made.rank, made.local_rank = rank, local_rank
    with local.living(made) if here else nullcontext():
        made.__init__(*given, **named)
    made.rank, made.local_rank = rank, local_rank
    return made


def _arguments(cls: type, args: Any, local_rank: int) -> tuple[list[Any], dict[str, Any]]:
    try:
        takes = list(inspect.signature(cls.__init__).parameters.values())[1:]  # type: ignore[misc]
    except (TypeError, ValueError):
        takes = []
    if cls.__init__ is object.__init__:  # type: ignore[misc]
        takes = []
    places = [p for p in takes if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    many = any(p.kind == p.VAR_POSITIONAL for p in takes)
    named = {"local_rank": local_rank} if any(p.name == "local_rank" for p in takes) else {}
    first = [p for p in places if p.name != "local_rank"]
    required = [p.name for p in first if p.default is p.empty]
    if len(first) > 1 and not named and len(required) > 1:
        if len(required) > 2:
            raise SettingError(
                f"{cls.__name__}.__init__ needs {', '.join(required)}.", "(self), (self, args) or "
                                                                         "(self, args, local_rank)",
                "put what it needs into args.",
            )  # fmt: skip
        return [args, local_rank], {}
    if required or (args is not None and (first or many)):
        return [args], named
    if args is not None:
        raise SettingError(
            f"args were given for {cls.__name__}, whose __init__ takes none.",
            "__init__(self, args)",
            "take them, or give none.",
        )
    return [], named


class RunnerHost:
    """Where a runner lives, if Ray keeps it. It is made anew, and run anew, after its process was
    lost."""

    def __init__(self, runner_class: Any, args: Any, rank: int, local_rank: int, name: str) -> None:
        proxy.set_identity(f"runner/{name}/{local_rank}")
        self._numbers = (rank, local_rank)
        self.runner: Any = None
        self._failed: Exception | None = None
        try:
            self.runner = construct(runner_class, writable(args), rank, local_rank)
        except Exception as error:  # said by run(), with this one's rank, instead of by Ray
            self._failed = error

    def run(self) -> Any:
        if self._failed is not None:
            raise self._failed
        found = self.runner.run()
        proxy.flush_all()
        return found

    def call(self, method: str, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if self._failed is not None:
            raise self._failed
        return getattr(self.runner, method)(*writable(given), **writable(named))

    def numbers(self) -> tuple[int, int]:
        """(rank, local_rank)."""
        return self._numbers

    def pid(self) -> int:
        return os.getpid()
