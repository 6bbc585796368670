"""Environments that a run steps now: stepping one elsewhere would break into its episodes."""

from __future__ import annotations

from weakref import WeakSet

from tandem.envs import functions
from tandem.envs.calls import attributes_of, has_methods
from tandem.envs.vector import Environments

running: WeakSet[Environments] = WeakSet()  # of the runs of this process


def parts(env: object, found: dict[int, object] | None = None) -> dict[int, object]:
    """An environment or vector and every one that it holds, such as what a wrapper wraps, by id."""
    found = {} if found is None else found
    if id(env) not in found:
        found[id(env)] = env
        for value in list(attributes_of(env).values()):
            held = list(value.values()) if isinstance(value, dict) else value
            several = isinstance(held, list | tuple) and held and _is_environment(held[0])
            for each in held if several else [value]:
                if _is_environment(each):
                    parts(each, found)
    return found


def is_shared(env: object) -> bool:
    """Whether a run steps this environment or vector now, or one that it holds."""
    return any(parts(env).keys() & parts(other).keys() for other in tuple(running))


def _is_environment(x: object) -> bool:
    # a simulator, or what `Plain` wraps, has no spaces; pure functions have no state to share
    return not isinstance(x, type) and has_methods(x, "reset", "step") and not functions.is_one(x)
