"""Checks of functional environments by tracing, without computing anything."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import Space
from jax import dtypes

from tandem.envs.jax.protocol import FunctionalEnv, TimeStep
from tandem.errors import EnvironmentFault, SpaceError
from tandem.spaces import Leaf, flattener, observation_spec
from tandem.types import Tree

FIELDS = ", ".join(TimeStep._fields)


def check(name: str, env: FunctionalEnv) -> None:
    """Check that steps can be chained in compiled code: a step preserves the structure of the
    state, observations match their space, and rewards and flags are scalars.

    Raises SpaceError for mismatches, EnvironmentFault for functions that cannot be traced."""
    for attribute in ("observation_space", "action_space", "max_episode_steps"):
        if getattr(env, attribute, None) is None:
            raise SpaceError(
                f"{name} has no {attribute}.",
                "observation_space and action_space of gymnasium.spaces, and max_episode_steps",
                "set self.max_episode_steps = 500, or 0 for no limit."
                if attribute == "max_episode_steps"
                else f"set self.{attribute} to one of gymnasium.spaces.",
            )
    for attribute in ("max_episode_steps", "reset_pool"):
        _check_whole(name, attribute, getattr(env, attribute, 0))
    key = jax.eval_shape(lambda: jax.random.key(0))
    begun = _traced(name, "reset", env.reset, key)
    if not isinstance(begun, tuple) or len(begun) != 2:
        raise SpaceError(
            f"{name}.reset returns {_described(begun)}.",
            "(state, observation)",
            "return state, obs from reset.",
        )
    state, obs = begun
    _check_observation(name, "reset", env.observation_space, obs)
    seen = _traced(name, "step", env.step, key, state, _action(env.action_space))
    if not isinstance(seen, tuple) or len(seen) != len(TimeStep._fields):
        raise SpaceError(
            f"{name}.step returns {_described(seen)}.",
            f"a TimeStep: {FIELDS}",
            "return tandem.functional.TimeStep(state, obs, reward, terminated, truncated) from "
            "step.",
        )
    seen = TimeStep(*seen)
    _check_attributes(name, env)
    _check_state(name, state, seen.state)
    _check_observation(name, "step", env.observation_space, seen.obs)
    for what in ("reward", "terminated", "truncated"):
        _check_scalar(name, what, seen._asdict()[what])


def same_dtypes(name: str, env: FunctionalEnv) -> None:
    """Raise SpaceError if observations, which match their space, have different dtypes after a
    reset and after a step. Compiled runs require equal dtypes."""
    key = jax.eval_shape(lambda: jax.random.key(0))
    state, obs = jax.eval_shape(env.reset, key)
    seen = TimeStep(*jax.eval_shape(env.step, key, state, _action(env.action_space)))
    for x, y in zip(jax.tree.leaves(obs), jax.tree.leaves(seen.obs), strict=True):
        if x.dtype != y.dtype:
            raise SpaceError(
                f"the observation of {name} is {_described(x)} after reset and {_described(y)} "
                "after step.",
                "the same dtype, as compiled runs require",
                f"return jnp.asarray(…, jnp.{y.dtype}) from reset, or give vectorization='native'.",
            )


def _traced(name: str, method: str, function: Callable[..., Any], *given: Any) -> Any:
    try:
        return jax.eval_shape(function, *given)
    except (jax.errors.JAXTypeError, jax.errors.JAXIndexError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else "no message"
        raise EnvironmentFault(
            f"{name}.{method} cannot be traced by JAX: {type(error).__name__}: {first}",
            "a pure function of arrays without Python control flow on their values",
            "use jnp.where(condition, a, b) or jax.lax.cond for if, jax.lax.fori_loop for loops "
            "of variable length, jax.numpy for numpy.",
        ) from error
    except Exception as error:
        raise EnvironmentFault(
            f"{name}.{method} raised {type(error).__name__} while JAX traced it: {error}",
            "reset(key) and step(key, state, action) that take and return JAX pytrees of arrays "
            "and numbers",
            "register its class with jax.tree_util.register_dataclass, or use a dict or a "
            "NamedTuple."
            if "not a valid JAX type" in str(error)
            else "fix it; its own traceback is above this one.",
        ) from error


def _check_whole(name: str, attribute: str, value: Any) -> None:
    with suppress(TypeError, ValueError):
        if float(value) >= 0 and float(value).is_integer():
            return
    steps = attribute == "max_episode_steps"
    raise SpaceError(
        f"{name} has {attribute}={value!r}.",
        "a whole number, " + ("0 for no limit" if steps else "0 to reset each episode"),
        f"set self.{attribute} = {500 if steps else 128}, or 0.",
    )


def _check_attributes(name: str, env: FunctionalEnv) -> None:
    """Raise EnvironmentFault if reset or step stored computed values in attributes, which would
    keep their values from tracing."""
    for attribute, x in getattr(env, "__dict__", {}).items():
        if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(x)):
            raise EnvironmentFault(
                f"{name}.{attribute} is set by reset or step.",
                "pure functions that pass everything on in the state",
                f"put {attribute} into the state that reset and step return, and read it there.",
            )


def _action(space: Space) -> Tree:
    """Return the shape and dtype of an action as `step` receives it."""
    return jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(np.shape(x), dtypes.canonicalize_dtype(np.asarray(x).dtype)),
        space.sample(),
    )


def _check_observation(name: str, method: str, space: Space, obs: Tree) -> None:
    spec = observation_spec(space)
    if not isinstance(spec, dict):
        _check_leaf(name, method, "the observation", spec, obs)
        return
    try:
        flat = flattener(space)(obs)
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        keys = sorted(obs) if isinstance(obs, dict) else type(obs).__name__
        raise SpaceError(
            f"the observation of {name}.{method} has {keys}.",
            f"the entries of its observation_space: {', '.join(spec)}",
            f"return {str(error) if isinstance(error, KeyError) else 'each of them'} in the "
            "observation, or remove it from the space.",
        ) from error
    for key, leaf in spec.items():
        _check_leaf(name, method, f"the entry {key!r} of the observation", leaf, flat[key])


def _check_leaf(name: str, method: str, what: str, leaf: Leaf, x: object) -> None:
    shape, dtype = _form(x)
    if shape == leaf.shape and np.can_cast(np.dtype(dtype), leaf.dtype, "same_kind"):
        return
    fix = (
        "return one array there; reset returns state, obs, in this order."
        if shape is None
        else f"use .astype(jnp.{leaf.dtype}), or change the space."
        if shape == leaf.shape
        else f"use .reshape({leaf.shape}), or give the space the shape {shape}."
    )
    raise SpaceError(
        f"{what} of {name}.{method} is {_described(x)}.",
        f"{leaf.dtype} {list(leaf.shape)}, as declared in its observation_space",
        fix,
    )


def _check_state(name: str, before: Tree, after: Tree) -> None:
    trees = [jax.tree_util.tree_flatten_with_path(tree) for tree in (before, after)]
    (first, structure), (second, other) = trees
    for (path, x), (path_after, y) in zip(first, second, strict=False):
        where = jax.tree_util.keystr(path)
        if path != path_after:
            break
        if (x.shape, x.dtype) != (y.shape, y.dtype):
            raise SpaceError(
                f"state{where} of {name} is {_described(x)} after reset and {_described(y)} after "
                "step.",
                "the same shape and dtype, as compiled code requires",
                f"return jnp.asarray(…, {x.dtype}).reshape({x.shape}) from step, or change reset "
                "to match step.",
            )
    if structure != other:
        odd = [
            jax.tree_util.keystr(path)
            for path, _ in first + second
            if (path in dict(first)) != (path in dict(second))
        ]
        raise SpaceError(
            f"the state of {name} is {structure} after reset and {other} after step.",
            "the same entries in both",
            f"return {'state' + odd[0] if odd else 'the same containers'} from both, or from "
            "neither.",
        )


def _check_scalar(name: str, what: str, x: object) -> None:
    shape, dtype = _form(x)
    is_number = what == "reward" and jnp.issubdtype(dtype, jnp.number)
    if shape == () and (is_number or jnp.issubdtype(dtype, jnp.bool_)):
        return
    wanted = "a scalar number" if what == "reward" else "a scalar bool"
    fix = f"give {what}.sum()" if what == "reward" else f"give {what}.any()"
    raise SpaceError(
        f"the {what} of {name}.step is {_described(x)}.",
        wanted,
        f"{fix}, or one entry of it."
        if shape
        else f"give jnp.asarray({what}, {'jnp.float32' if what == 'reward' else 'bool'}).",
    )


def _form(x: object) -> tuple[Any, Any]:
    return getattr(x, "shape", None), getattr(x, "dtype", None)


def _described(x: object) -> str:
    shape, dtype = _form(x)
    if shape is not None and dtype is not None:
        return f"{dtype} {list(shape)}"
    if isinstance(x, tuple):
        return f"a tuple of {len(x)}"
    return f"a {type(x).__name__}"
