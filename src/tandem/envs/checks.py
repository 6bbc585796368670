"""Checks of what environments return: tests of arrays, and the errors for wrong ones. The callers,
one per kind of vector, know where and when something was returned."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np

from tandem.envs import tensors
from tandem.errors import (
    EnvironmentFault,
    NonFiniteError,
    ResumeError,
    TandemError,
    UnrepeatableError,
)
from tandem.spaces import Leaf, fits
from tandem.types import Array, Tree

NONE = np.empty(0, np.int64)
ALONE = np.ndarray | np.generic | float | int  # second of two parts of an observation, not an info
_OR_PLAIN = "or wrap the environment: tandem.envs.plain.Plain(env)."
# Error text of an environment with the API of gym before 0.26 -> (Gymnasium's API, fix).
_OLD = {
    "to unpack (expected 5, got 4": (
        "(observation, reward, terminated, truncated, info) from step",
        "return these five from step",
    ),
    "reset() got an unexpected keyword argument": (
        "reset(self, *, seed=None, options=None)",
        "let reset take seed=None and options=None",
    ),
}


# Tests


def all_finite(x: Array) -> bool:
    """Return true if a contiguous float array has no NaN or infinity; any other number times 0 is
    0. On small arrays the dot product takes a third of the time of isfinite().all()."""
    flat = x.ravel()
    return not flat.dot(_zeros(flat.size))


@lru_cache(maxsize=64)
def _zeros(size: int) -> Array:
    return np.zeros(size, np.float32)


def is_finite(x: Array) -> bool:
    """Return true if an array or tensor has no NaN or infinity."""
    if isinstance(x, np.ndarray):
        return x.dtype.kind != "f" or all_finite(x)
    return tensors.is_finite(x)


def storable(value: Tree, spec: Leaf) -> bool:
    """Return true if an observation can be stored in the dtype of its space. Floats are never
    truncated to integers, and integers must fit the range of the dtype."""
    x = np.asarray(value)
    return x.dtype.kind in ("biuf" if spec.dtype.startswith("f") else "biu") and fits(x, spec.dtype)


def outside(x: Array, spec: Leaf) -> Array:
    """Return the indices of the rows of discrete values [N, ...] that lie outside their space.
    Backends would turn these into zeros, or fail."""
    sizes = np.array(spec.sizes) if spec.shape else spec.sizes[0]
    odd = (x < spec.start) | (x >= spec.start + sizes)
    return np.flatnonzero(odd.reshape(len(x), -1).any(axis=1)) if odd.any() else NONE


def numbers(values: Sequence[Any]) -> Array | None:
    """Convert to float32 [N]; return None if one of them is not a number."""
    try:
        x: Array = np.array(values, np.float32)
    except (TypeError, ValueError, OverflowError):  # Overflow: integers beyond float range
        return None
    return x if x.shape == (len(values),) else None


def check_finite(
    name: str, what: str, x: Array, when: Callable[[int], str], first: int = 0
) -> None:
    """Raise NonFiniteError for the first row of x [N, ...] with NaN or infinity. x may be a tensor.

    when: describes the current step of an environment. first: number of the environment in row 0.
    """
    if is_finite(x):
        return
    x = tensors.to_numpy(x)
    i = int(np.flatnonzero(~np.isfinite(x.reshape(len(x), -1)).all(axis=1))[0])
    raise not_finite(name, first + i, what, when(first + i), x[i])


# Errors of what was returned. env: number of the environment; None: the vector itself


def returned(name: str, env: int | None, what: str, expected: str, fix: str) -> EnvironmentFault:
    source = f"the vector environment of {name}" if env is None else f"environment {env} of {name}"
    return EnvironmentFault(f"{source} returned {what}.", expected, fix)


def not_finite(name: str, env: int, what: str, when: str, value: Any) -> NonFiniteError:
    return NonFiniteError(
        f"environment {env} of {name} returned {what} {np.asarray(value)} {when}.",
        "finite numbers in every observation and reward",
        "look for a division by zero or a diverging simulation in the environment, whose first bad "
        "step `tandem check` shows, or for actions that are not finite, of a custom network.",
    )


def no_choice(name: str, env: int, when: str) -> EnvironmentFault:
    return EnvironmentFault(
        f"the action mask of environment {env} of {name} masks every choice {when}.",
        "at least one valid action for every choice",
        "allow a no-op action, or end the episode (terminated) where no action is valid.",
    )


def unlike_space(
    name: str, env: int | None, value: Any, spec: Leaf, key: str | None, when: str, n: int = 0
) -> EnvironmentFault:
    """Return the error for an observation, or with `n` for those of n environments."""
    given = value if hasattr(value, "dtype") else np.asarray(value)  # a tensor is not copied
    shape, where = (n, *spec.shape) if n else spec.shape, f" under {key!r}" if key else ""
    what, space = "an observation", "observation_space"
    if env is None:
        what, space = "observations", "single_observation_space"
    elif np.size(given) <= 16 and given.shape == shape:
        where += f" {given}"
    return returned(
        name,
        env,
        f"{what}{where} of shape {tuple(given.shape)} and dtype {given.dtype} {when}".rstrip(),
        f"shape {shape} and dtype {spec.dtype}, as declared in its {space}",
        f"correct the environment's observation or its {space}.",
    )


def no_symbol(name: str, env: int, when: str, value: Any, spec: Leaf) -> EnvironmentFault:
    last = tuple(spec.start + n - 1 for n in spec.sizes)
    return returned(
        name,
        env,
        f"the observation {value} {when}",
        f"whole numbers from {spec.start} to {last if spec.shape else last[0]}, as declared in "
        "its observation_space",
        "correct the environment's observation or its observation_space.",
    )


def wrong_reward(name: str, rewards: Sequence[Tree]) -> EnvironmentFault:
    env = next(
        (
            i
            for i, r in enumerate(rewards)
            if np.size(r) != 1 or not np.issubdtype(np.asarray(r).dtype, np.number)
        ),
        0,
    )
    # values that float() converts never get here
    one = "float(np.sum(reward))" if np.size(rewards[env]) > 1 else "0.0"
    return returned(
        name,
        env,
        f"the reward {rewards[env]!r}",
        "one number for each step",
        f"return one, such as {one}, from the environment's step.",
    )


def wrong_flag(name: str, what: str, flags: Sequence[Tree]) -> EnvironmentFault:
    env = next((i for i, flag in enumerate(flags) if np.ndim(flag)), 0)
    one = f"bool({what})" if np.size(flags[env]) == 1 else f"bool({what}.all()), or of any(),"
    return returned(
        name,
        env,
        f"{what}={flags[env]!r}",
        "true or false for each step",
        f"return {one} from the environment's step.",
    )


# Errors of calls


def raised(name: str, env: int | None, step: int | None, error: Exception) -> EnvironmentFault:
    if isinstance(error, TandemError):
        raise error  # it has its own text and fix
    if step == 0 and isinstance(error, ValueError) and "to unpack (expected 2" in str(error):
        return _observation_alone(name)  # raised by a Gymnasium wrapper
    expected = "an environment that steps and resets without exceptions"
    fix = "fix the environment; its own traceback is above this one."
    for text, (wanted, change) in _OLD.items():
        if text in str(error):
            expected, fix = f"Gymnasium's {wanted}", f"{change}; {_OR_PLAIN}"
    source = f"{name}'s own vector environment" if env is None else f"environment {env} of {name}"
    when = (
        ""
        if step is None
        else " while resetting"
        if step == 0
        else f" at step {step} of its episode"
    )
    return EnvironmentFault(
        f"{source} raised {type(error).__name__}{when}: {error}",
        expected,
        fix,
    )


def opened(name: str, came: Any) -> Any:
    """Return the result of `reset` if it is (observation, info). Raises EnvironmentFault for an
    observation alone."""
    if not isinstance(came, tuple | list) or len(came) != 2 or isinstance(came[1], ALONE):
        raise _observation_alone(name)
    return came


def _observation_alone(name: str) -> EnvironmentFault:
    return EnvironmentFault(
        f"reset of {name} returned only the observation, as gym did before 0.26.",
        "Gymnasium's (observation, info)",
        f"return obs, {{}} from reset; {_OR_PLAIN}",
    )


@contextmanager
def raising(name: str, env: int | None = None, step: int | None = None) -> Iterator[None]:
    """Convert exceptions of environments to EnvironmentFault."""
    try:
        yield
    except Exception as error:
        raise raised(name, env, step, error) from error


# Errors of saved states


def other_number(saved: int, here: int) -> ResumeError:
    """Return the error for a saved state with a different number of environments."""
    return ResumeError(
        f"the saved state has {saved} environments, but this run has {here}.",
        "the run's original number of environments",
        f"make {saved} environments.",
    )


def not_resumable(name: str, env: int | None, why: str) -> UnrepeatableError:
    source = f"the environments of {name}" if env is None else f"environment {env} of {name}"
    return UnrepeatableError(
        f"{source} could not be restored: {why}. {name} is not exactly resumable.",
        "the same observations and rewards after reset(seed) and the same actions",
        "sample every random number from self.np_random, which reset(seed=...) seeds, and reset "
        "all state that changes; or train without interruption.",
    )
