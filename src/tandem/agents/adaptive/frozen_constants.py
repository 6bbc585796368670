"""Guards against silent constants in compiled functions.

JAX and TensorFlow compile a user's `action` and loss by running them once: a plain number that they
read from the agent then, such as `self.epsilon`, stays in the compiled code as it was, whatever is
assigned to it later. Here such reads are recorded while the function is compiled, so that a change
can be noticed, said, and compiled in.

Attributes are read in the user's own code, by `self.name`, and Python tells nobody but the object's
class. So the agent has another class meanwhile, a subclass of its own whose `__getattribute__`
records. Nothing plainer does: to compare all attributes would compile anew for every counter that
the loss never reads; a proxy in place of `self` is not what `super()` and the agent's own methods
get; and a `__getattribute__` that is always there would slow down every read, compiled or not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import is_dataclass
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np

# Members of a dict or list whose numbers are recorded; longer ones are records rather than settings
FEW = 64
DEPTH = 4  # of containers within containers that are looked into

T = TypeVar("T")
Number = bool | int | float | np.number[Any]


class FrozenConstants:
    """The plain numbers of an agent that were read while a function was compiled.

    inputs: what the function is given in place of some of them, by attribute, while it is compiled;
    those are not constant.
    """

    def __init__(self, agent: object) -> None:
        self.agent = agent
        self.inputs: dict[str, Any] = {}
        self._read: dict[str, dict[str, Number]] = {}  # by attribute; see `numbers`

    def recorded(self, function: Callable[..., T]) -> Callable[..., T]:
        """Returns the function, which records the numbers that it reads whenever it runs: so while
        it is compiled."""

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
        """Returns the recorded numbers that have another value now, as one writes them:
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
        """Drops what was recorded, before the function is compiled anew."""
        self._read = {}


def numbers(name: str, value: object, depth: int = DEPTH) -> dict[str, Number] | None:
    """Returns the plain numbers in an attribute, by what one writes for them: itself, or those in a
    dict, list, tuple, namespace or dataclass of few members, and in such within it; None for
    anything else."""
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
    """Whether two numbers are equal; NaN is equal to itself."""
    return bool(a == b) or (a != a and b != b)
