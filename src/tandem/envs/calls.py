"""What a run's program calls in environments that are trained in: methods, and attributes that it
sets. A wrapper or an environment has them; the outermost that defines a name is the one meant."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from tandem.errors import EnvironmentFault, SettingError, TandemError, UnknownNameError, nearest

INSIDE = ("env", "inner", "aec_env")  # attributes that hold what a wrapper or adapter is around
UNSEALED = (
    "train in an environment that is written for Gymnasium, such as CartPole-v1 instead of "
    "tandem/CartPole-v1."
)


class EnvironmentCall(NamedTuple):
    """A call of a method, or with `sets` an attribute to set to `arguments[0]`. JSON data."""

    name: str
    arguments: list[object]
    keywords: dict[str, Any]
    sets: bool = False

    def on(self, env: Any, title: str) -> None:
        """Makes the call in one environment, or in a vector that defines the name. title: what
        errors call it."""
        owner, arguments, keywords = find(env, self.name, title), *copy.deepcopy(self[1:3])
        with raising_faults(title, self.name):
            if self.sets:
                setattr(owner, self.name, *arguments)
            else:
                getattr(owner, self.name)(*arguments, **keywords)


def checked(call: EnvironmentCall) -> EnvironmentCall:
    """The call as a checkpoint gives it back. SettingError for what JSON cannot hold."""
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
    """The wrapper, environment or vector that defines an attribute. UnknownNameError where none
    does."""
    if (layer := _defining(env, name)) is not None:
        return layer
    if hasattr(env.unwrapped, "functional"):
        raise sealed(name, title, UNSEALED)
    known = {key for layer in layers(env, INSIDE) for key in dir(layer) if not key.startswith("_")}
    fix = f"define {name} in the environment or in a wrapper around it, or correct the name."
    fix = "" if nearest(name, known) else fix
    raise UnknownNameError(f"method or attribute in {title}:", name, known, fix)


def sealed(name: str, title: str, fix: str) -> SettingError:
    """For environments that no call can reach."""
    return SettingError(
        f"{name!r} cannot be called, set or read in {title}, which is stepped by compiled code.",
        "an environment that is stepped in Python",
        fix,
    )


def in_vector(vector: Any, call: EnvironmentCall, title: str) -> None:
    """Makes a call in a vector: in itself where it defines the name, else in its environments."""
    if _is_own(vector, call.name):
        call.on(vector, title)
        return
    inner = vector.unwrapped
    arguments, keywords = copy.deepcopy(call[1:3])
    with raising_faults(title, call.name):
        if call.sets:
            inner.get_attr(call.name)  # set_attr would make one that nobody reads
            inner.set_attr(call.name, arguments * int(inner.num_envs))
        else:
            inner.call(call.name, *arguments, **keywords)


def from_vector(vector: Any, name: str, title: str) -> list[object]:
    """The values of an attribute in the environments of a vector, or its own, for each of them."""
    if _is_own(vector, name):
        return [getattr(find(vector, name, title), name)] * int(vector.num_envs)
    with raising_faults(title, name):
        return list(vector.unwrapped.get_attr(name))


@contextmanager
def raising_faults(title: str, name: str) -> Iterator[None]:
    """EnvironmentFault for whatever the environment raises."""
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
    """The wrappers of an environment, or of a vector of them, outermost first, and itself. inside:
    the attributes that hold what the next one is around."""
    while env is not None:
        yield env
        held = attributes_of(env)
        env = next((held[key] for key in inside if key in held), None)


def _defining(env: Any, name: str) -> Any | None:
    """The outermost layer that has an attribute itself, not by passing it on; or None."""
    for layer in layers(env, INSIDE):
        if name in attributes_of(layer) or hasattr(type(layer), name):
            return layer
    return None


def _is_own(vector: Any, name: str) -> bool:
    """Whether a vector has an attribute itself, or its environments cannot be reached."""
    return not has_methods(vector.unwrapped, "call") or _defining(vector, name) is not None


def has_methods(env: object, *names: str) -> bool:
    """Whether an object has all methods of these names."""
    return all(callable(getattr(env, name, None)) for name in names)


def attributes_of(env: object) -> dict[str, Any]:
    """The attributes that an object has itself; {} for a class, which has a view of them."""
    found = getattr(env, "__dict__", None)
    return found if isinstance(found, dict) else {}


def spec_of(env: object) -> Any | None:
    """What an environment, or a vector, is registered as; None for one that is not."""
    return getattr(env, "spec", None)


def metadata_of(env: object) -> dict[str, Any]:
    """The metadata of an environment, {} where it has none."""
    return getattr(env, "metadata", None) or {}
