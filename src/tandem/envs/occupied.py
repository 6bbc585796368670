"""Environments in use by a run. Stepping one elsewhere would interrupt its episodes."""

from __future__ import annotations

from weakref import WeakSet

from tandem.envs import functions
from tandem.envs.calls import attributes_of, has_methods
from tandem.envs.vector import Environments

running: WeakSet[Environments] = WeakSet()  # of the runs of this process


def parts(env: object, found: dict[int, object] | None = None) -> dict[int, object]:
    """Return an environment or vector and all those that it contains, such as wrapped ones, by
    `id()`."""
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
    """Return true if a run is stepping this environment or vector, or one that it contains."""
    return any(parts(env).keys() & parts(other).keys() for other in tuple(running))


def _is_environment(x: object) -> bool:
    # spaces are not required: simulators and objects wrapped by `Plain` may have none; functional
    # environments have no state to share
    return not isinstance(x, type) and has_methods(x, "reset", "step") and not functions.is_one(x)
