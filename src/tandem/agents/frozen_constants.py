"""Which plain numbers of a user's agent its functions read while they are compiled: they become
constants in them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import is_dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

# members of a dict or list whose numbers are watched; longer ones are records rather than settings
FEW = 64


class Reads:
    """The numbers that were read since the beginning, or since `forget`."""

    def __init__(self, agent: Any) -> None:
        self.agent = agent
        self._read: dict[str, dict[str, Any]] = {}  # by attribute

    @contextmanager
    def noting(self) -> Iterator[None]:
        """What is read within is noted."""
        agent, kind, read = self.agent, type(self.agent), self._read

        class Watched(kind):  # type: ignore[misc,valid-type]
            def __getattribute__(self, name: str) -> Any:
                value = super().__getattribute__(name)
                if (known := numbers(name, value)) is not None:
                    read[name] = known
                return value

        agent.__class__ = Watched
        try:
            yield
        finally:
            agent.__class__ = kind

    def changed(self) -> list[str]:
        """Those that have been given other values since."""
        found: list[str] = []
        for name, before in self._read.items():
            now = numbers(name, getattr(self.agent, name, None)) or {}
            found += [
                n
                for n in before | now
                if n not in before or n not in now or not _same(now[n], before[n])
            ]
        return found

    def forget(self) -> None:
        """It is to be compiled anew."""
        self._read = {}


def numbers(name: str, value: Any, depth: int = 4) -> dict[str, Any] | None:
    """The plain numbers in an attribute, by what one writes for them: itself, or those in a dict,
    list, tuple, namespace or dataclass of few members, and in such within it. None for anything
    else."""
    if isinstance(value, (bool, int, float, np.number)):
        return {name: value}
    if isinstance(value, dict):
        members = [(f"{name}[{key!r}]", x) for key, x in value.items()] if len(value) <= FEW else []
    elif isinstance(value, (list, tuple)):
        members = [(f"{name}[{i}]", x) for i, x in enumerate(value)] if len(value) <= FEW else []
    elif isinstance(value, SimpleNamespace) or (
        is_dataclass(value) and not isinstance(value, type)
    ):
        members = [(f"{name}.{key}", x) for key, x in getattr(value, "__dict__", {}).items()]
    else:
        return None
    inside = [numbers(key, x, depth - 1) for key, x in members] if depth else []
    return {key: x for found in inside if found for key, x in found.items()}


def _same(a: Any, b: Any) -> bool:
    """Whether two numbers are equal; what is no number is equal to itself."""
    return bool(a == b) or (a != a and b != b)
