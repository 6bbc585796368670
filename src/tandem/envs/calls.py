"""Calls of methods and attributes of training environments by user programs. A name refers to the
outermost wrapper that defines it, or to the environment itself."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from tandem.errors import EnvironmentFault, SettingError, TandemError, UnknownNameError, nearest

INSIDE = ("env", "inner", "aec_env")  # attributes with the wrapped object of a wrapper or adapter
UNSEALED = (
    "train in an environment that is written for Gymnasium, such as CartPole-v1 instead of "
    "tandem/CartPole-v1."
)


class EnvironmentCall(NamedTuple):
    """Method call, or with `sets` the assignment of `arguments[0]` to an attribute. JSON data."""

    name: str
    arguments: list[object]
    keywords: dict[str, Any]
    sets: bool = False

    def on(self, env: Any, title: str) -> None:
        """Make the call in one environment, or in a vector that defines the name. title: its name
        in error messages."""
        owner, arguments, keywords = find(env, self.name, title), *copy.deepcopy(self[1:3])
        with raising_faults(title, self.name):
            if self.sets:
                setattr(owner, self.name, *arguments)
            else:
                getattr(owner, self.name)(*arguments, **keywords)


def checked(call: EnvironmentCall) -> EnvironmentCall:
    """Return the call as read back from a checkpoint. Raises SettingError for arguments that JSON
    cannot represent."""
    try:
        return EnvironmentCall(*json.loads(json.dumps(call, allow_nan=False)))
    except (TypeError, ValueError) as error:
        raise SettingError(
            f"environments.{'set_attribute' if call.sets else 'call'}({call.name!r}, ...) was "
            f"given {error}.",
            "what JSON can hold, so that a resumed run can repeat it",
            "convert the value first, with float(x), int(x) or x.tolist().",
        ) from error


def find(env: Any, name: str, title: str) -> Any:
    """Return the wrapper, environment or vector that defines an attribute. Raises UnknownNameError
    if there is none."""
    if (layer := _defining(env, name)) is not None:
        return layer
    if hasattr(env.unwrapped, "functional"):
        raise sealed(name, title, UNSEALED)
    known = {key for layer in layers(env, INSIDE) for key in dir(layer) if not key.startswith("_")}
    fix = f"define {name} in the environment or in a wrapper around it, or correct the name."
    fix = "" if nearest(name, known) else fix
    raise UnknownNameError(f"method or attribute in {title}:", name, known, fix)


def sealed(name: str, title: str, fix: str) -> SettingError:
    """Return the error for environments that are stepped by compiled code."""
    return SettingError(
        f"{name!r} cannot be called, set or read in {title}, which is stepped by compiled code.",
        "an environment that is stepped in Python",
        fix,
    )


def in_vector(vector: Any, call: EnvironmentCall, title: str) -> None:
    """Make a call in a vector itself if it defines the name, otherwise in its environments."""
    if _is_own(vector, call.name):
        call.on(vector, title)
        return
    inner = vector.unwrapped
    arguments, keywords = copy.deepcopy(call[1:3])
    with raising_faults(title, call.name):
        if call.sets:
            inner.get_attr(call.name)  # raises if missing; set_attr would create it
            inner.set_attr(call.name, arguments * int(inner.num_envs))
        else:
            inner.call(call.name, *arguments, **keywords)


def from_vector(vector: Any, name: str, title: str) -> list[object]:
    """Return the values of an attribute in a vector's environments, or the vector's own value,
    repeated."""
    if _is_own(vector, name):
        return [getattr(find(vector, name, title), name)] * int(vector.num_envs)
    with raising_faults(title, name):
        return list(vector.unwrapped.get_attr(name))


@contextmanager
def raising_faults(title: str, name: str) -> Iterator[None]:
    """Convert exceptions of the environment to EnvironmentFault."""
    try:
        yield
    except TandemError:
        raise
    except Exception as error:
        raise EnvironmentFault(
            f"{title} raised {type(error).__name__} in {name!r}: {error}",
            "an environment with this method or attribute, which raises nothing",
            "correct the environment or the arguments; its own traceback is above this one.",
        ) from error


def layers(env: Any, inside: Sequence[str] = ("env",)) -> Iterator[Any]:
    """Yield the wrappers of an environment or vector, outermost first, then itself. inside: names
    of attributes that hold the wrapped object."""
    while env is not None:
        yield env
        held = attributes_of(env)
        env = next((held[key] for key in inside if key in held), None)


def _defining(env: Any, name: str) -> Any | None:
    """Return the outermost layer that defines an attribute itself, without forwarding; or None."""
    for layer in layers(env, INSIDE):
        if name in attributes_of(layer) or hasattr(type(layer), name):
            return layer
    return None


def _is_own(vector: Any, name: str) -> bool:
    """Return true if a vector defines an attribute itself, or its environments are
    inaccessible."""
    return not has_methods(vector.unwrapped, "call") or _defining(vector, name) is not None


def has_methods(env: object, *names: str) -> bool:
    """Return true if an object has all methods with these names."""
    return all(callable(getattr(env, name, None)) for name in names)


def attributes_of(env: object) -> dict[str, Any]:
    """Return an object's own attributes; {} for a class, whose `__dict__` is only a view."""
    found = getattr(env, "__dict__", None)
    return found if isinstance(found, dict) else {}


def spec_of(env: object) -> Any | None:
    """Return the registered spec of an environment or vector; None if it has none."""
    return getattr(env, "spec", None)


def metadata_of(env: object) -> dict[str, Any]:
    """Return the metadata of an environment; {} if it has none."""
    return getattr(env, "metadata", None) or {}
