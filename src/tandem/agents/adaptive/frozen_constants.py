"""Detection of stale constants in compiled functions.

JAX and TensorFlow compile a user's `action` and loss by running them once. A plain number that they
read from the agent, such as `self.epsilon`, stays in the compiled code with that value, whatever is
assigned to it later. This module records such reads during compilation, so that a change can be
detected, reported and compiled in.

The user's code reads attributes as `self.name`, and only the object's class can observe this. So
during compilation the agent's class is replaced by a subclass whose `__getattribute__` records.
Simpler ways do not work: comparing all attributes would recompile for every counter that the loss
never reads; a proxy in place of `self` does not reach `super()` and the agent's own methods; and a
permanent `__getattribute__` would slow down every read, compiled or not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import is_dataclass
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np

# Maximum size of a dict or list whose numbers are recorded; longer ones are records, not settings
FEW = 64
DEPTH = 4  # maximum nesting of containers to search

T = TypeVar("T")
Number = bool | int | float | np.number[Any]


class FrozenConstants:
    """Plain numbers of an agent that were read while a function was compiled.

    inputs: values that replace attributes during compilation, by name; these attributes are not
    constants.
    """

    def __init__(self, agent: object) -> None:
        self.agent = agent
        self.inputs: dict[str, Any] = {}
        self._read: dict[str, dict[str, Number]] = {}  # by attribute; see `numbers`

    def recorded(self, function: Callable[..., T]) -> Callable[..., T]:
        """Return a function that also records the numbers it reads whenever it runs, that is,
        during compilation."""

        def recording(*arguments: Any) -> T:
            agent, kind, read = self.agent, type(self.agent), self._read
            inputs = self.inputs

            class Recorded(kind):  # type: ignore[misc,valid-type]
                def __getattribute__(self, name: str) -> Any:
                    if name in inputs:
                        return inputs[name]
                    value = super().__getattribute__(name)
                    if (within := numbers(name, value)) is not None:
                        read[name] = within
                    return value

            agent.__class__ = Recorded
            try:
                return function(*arguments)
            finally:
                agent.__class__ = kind

        return recording

    def changed(self) -> list[str]:
        """Return the recorded numbers whose value has changed, as Python expressions:
        "betas[0]"."""
        changed: list[str] = []
        for name, before in self._read.items():
            now = numbers(name, getattr(self.agent, name, None)) or {}
            changed += [
                n
                for n in before | now
                if n not in before or n not in now or not _equal(now[n], before[n])
            ]
        return changed

    def forget(self) -> None:
        """Drop the records, before the function is recompiled."""
        self._read = {}


def numbers(name: str, value: object, depth: int = DEPTH) -> dict[str, Number] | None:
    """Return the plain numbers in an attribute, by Python expression: the attribute itself, or
    those in a small dict, list, tuple, namespace or dataclass, also nested; None for anything
    else."""
    if isinstance(value, (bool, int, float, np.number)):
        return {name: value}
    if isinstance(value, (dict, list, tuple)) and (len(value) > FEW or not depth):
        return {}
    if isinstance(value, dict):
        members = [(f"{name}[{key!r}]", x) for key, x in value.items()]
    elif isinstance(value, (list, tuple)):
        members = [(f"{name}[{i}]", x) for i, x in enumerate(value)]
    elif isinstance(value, SimpleNamespace) or (
        is_dataclass(value) and not isinstance(value, type)
    ):
        members = [(f"{name}.{key}", x) for key, x in getattr(value, "__dict__", {}).items()]
    else:
        return None
    inside = [numbers(key, x, depth - 1) for key, x in members] if depth else []
    return {key: x for part in inside if part for key, x in part.items()}


def _equal(a: Number, b: Number) -> bool:
    """Return whether two numbers are equal; NaN equals itself."""
    return bool(a == b) or (a != a and b != b)
