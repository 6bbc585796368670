"""Environments that are functions of JAX, told from all others without JAX; what is made of them
comes from `tandem.functional`, a room above this one."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from tandem.envs.calls import has_methods
from tandem.errors import misfit
from tandem.types import EnvKwargs

FAMILIES = ("brax", "gymnax", "pgx", "phys2d", "playground", "tabular")  # FAMILY/NAME
WORLDS = {"tandem/CartPole-v1": "CartPole", "tandem/Pendulum-v1": "Pendulum"}

# what functions and classes without arguments gave: one is enough, since nothing changes it, and
# what JAX compiles is compiled for each
_given: WeakKeyDictionary[object, object] = WeakKeyDictionary()


def is_id(env: object) -> bool:
    """Whether this is the id of a functional environment."""
    return isinstance(env, str) and (env in WORLDS or env.partition("/")[0] in FAMILIES)


def is_one(env: object) -> bool:
    """Whether this object is a functional environment (`tandem.functional.FunctionalEnv`), or one
    of another library that there is an adapter for."""
    return not isinstance(env, str | type) and any(kind(env) for kind in KINDS.values())


def is_functional(env: object) -> bool:
    """Whether a run in `env`, which has been made once by now, is in a functional environment."""
    if hasattr(env, "wrappers"):  # which are Gymnasium's
        return False
    return is_id(env) or is_one(env) or (callable(env) and known(env) is not None)


def view(env: object, kwargs: EnvKwargs | None = None, name: str = "") -> Any:
    """One of `is_id` or `is_one` as a gymnasium.Env, whose `together` makes a vector of it. name:
    of an object, for messages and files."""
    return importlib.import_module("tandem.functional.names").view(env, kwargs, name)


def called(function: Callable[[], object]) -> object:
    """The result of a function; the same each time where that is a functional environment."""
    if (made := known(function)) is None:
        made = function()
        if is_one(made):
            try:
                _given[function] = made
            except TypeError:  # neither hashed nor referred to
                return made
    return made


def known(function: object) -> object:
    """The functional environment that a function has given already, or None."""
    try:
        return _given.get(function)
    except TypeError:
        return None


def _is_protocol(env: Any) -> bool:
    # gym's `step` takes the action alone
    return (
        has_methods(env, "reset", "step")
        and not misfit(env.step, 0, 0, 0)
        and bool(misfit(env.step, 0))
        and not misfit(env.reset, 0)
    )


def _is_brax(env: Any) -> bool:
    return (
        has_methods(env, "reset", "step")
        and all(hasattr(env, name) for name in ("observation_size", "action_size"))
        and bool(misfit(env.step, 0))
        and not misfit(env.step, 0, 0)
    )


# the adapter of each, by its name in `tandem.functional.adapters`; "" needs none
KINDS: dict[str, Callable[[Any], bool]] = {
    # has `step` and `reset` too
    "Gymnax": lambda env: has_methods(env, "step_env", "reset_env", "observation_space"),
    "Brax": _is_brax,
    "Pgx": lambda env: has_methods(env, "init", "step", "observe") and hasattr(env, "num_players"),
    "Gymnasium": lambda env: has_methods(
        env, "initial", "transition", "observation", "reward", "terminal"
    ),
    "": _is_protocol,
}
