"""Detection of functional JAX environments without importing JAX. Their adapters are in
`tandem.envs.jax`, a higher layer."""

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

# functional environments by the factory that made them: they are immutable, and JAX would compile
# again for each new object
_given: WeakKeyDictionary[object, object] = WeakKeyDictionary()


def is_id(env: object) -> bool:
    """Return true for the id of a functional environment."""
    return isinstance(env, str) and (env in WORLDS or env.partition("/")[0] in FAMILIES)


def is_one(env: object) -> bool:
    """Return true for a functional environment object (`tandem.functional.FunctionalEnv`), or one
    of another library that has an adapter."""
    return not isinstance(env, str | type) and any(kind(env) for kind in KINDS.values())


def is_functional(env: object) -> bool:
    """Return true if a run in `env`, which has been made once before, uses a functional
    environment."""
    if hasattr(env, "wrappers"):  # Gymnasium wrappers need a Gymnasium environment
        return False
    return is_id(env) or is_one(env) or (callable(env) and known(env) is not None)


def view(env: object, kwargs: EnvKwargs | None = None, name: str = "") -> Any:
    """Adapt an id (`is_id`) or object (`is_one`) to gymnasium.Env; its method `together` makes a
    vector. name: of an object, for messages and files."""
    return importlib.import_module("tandem.envs.jax.names").view(env, kwargs, name)


def called(function: Callable[[], object]) -> object:
    """Call a function and return its result, cached if it is a functional environment."""
    if (made := known(function)) is None:
        made = function()
        if is_one(made):
            try:
                _given[function] = made
            except TypeError:  # not hashable or not weakly referenceable
                return made
    return made


def known(function: object) -> object:
    """Return the functional environment that a function returned before, or None."""
    try:
        return _given.get(function)
    except TypeError:
        return None


def _is_protocol(env: Any) -> bool:
    # gym's `step` accepts only the action
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


# test by adapter name in `tandem.envs.jax.adapters`; "" needs no adapter
KINDS: dict[str, Callable[[Any], bool]] = {
    # first, since it has `step` and `reset` too
    "Gymnax": lambda env: has_methods(env, "step_env", "reset_env", "observation_space"),
    "Brax": _is_brax,
    "Pgx": lambda env: has_methods(env, "init", "step", "observe") and hasattr(env, "num_players"),
    "Gymnasium": lambda env: has_methods(
        env, "initial", "transition", "observation", "reward", "terminal"
    ),
    "": _is_protocol,
}
