"""Environments that a run steps now: stepping one elsewhere would break into its episodes."""

from __future__ import annotations

from typing import Any
from weakref import WeakSet

from tandem.envs import functions
from tandem.envs.vector import Environments

running: WeakSet[Environments] = WeakSet()  # of the runs of this process


def parts(env: Any, found: dict[int, Any] | None = None) -> dict[int, Any]:
    """An environment or vector and every one that it holds, such as what a wrapper wraps, by id."""
    found = {} if found is None else found
    if id(env) not in found:
        found[id(env)] = env
        for value in list(getattr(env, "__dict__", {}).values()):
            held = list(value.values()) if isinstance(value, dict) else value
            several = isinstance(held, list | tuple) and held and _is_environment(held[0])
            for each in held if several else [value]:
                if _is_environment(each):
                    parts(each, found)
    return found


def is_shared(env: Any) -> bool:
    """Whether a run steps this environment or vector now, or one that it holds."""
    return any(parts(env).keys() & parts(other).keys() for other in tuple(running))


def _is_environment(x: Any) -> bool:
    # a simulator, or what `Plain` wraps, has no spaces; pure functions have no state to share
    return (
        not isinstance(x, type)
        and hasattr(x, "reset")
        and hasattr(x, "step")
        and not functions.is_one(x)
    )
