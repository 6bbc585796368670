"""Vector environments provided by users: an object, a function that makes one, or an EnvPool
id."""

from __future__ import annotations

import inspect
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from tandem.envs import envpool, functions
from tandem.envs.calls import has_methods, spec_of
from tandem.envs.ids import guarded, import_gymnasium
from tandem.envs.vector import close, closed_on_error, episode_seed
from tandem.envs.vector_env import VectorEnvironments, is_vector
from tandem.errors import SettingError, misfit
from tandem.platforms import FROM_TERMINAL
from tandem.settings import named_here
from tandem.types import EnvKwargs

FILLED = ("num_envs", "seed")  # arguments that a run passes to functions with these parameters


class VectorSource:
    """Source of a run's vector environment.

    Args:
        name: Name for messages.
        build: Function that makes a vector, called with the run's `env_kwargs` and, if it has such
            parameters, with `num_envs` and `seed`; None for an object.
        vector: The object, or a vector already made by `build`, which is used first.
        path: "module:function", with which a run's folder can refer to the function.
        is_atari: True if it accepts the arguments of `atari.Preprocessing`.
    """

    def __init__(
        self,
        name: str,
        build: Callable[..., Any] | None,
        vector: Any | None = None,
        path: str = "",
        is_atari: bool = False,
    ) -> None:
        self.name, self.path, self.is_atari = name, path, is_atari
        self._build, self._vector = build, vector
        self._fills = named_by(build)
        # a vector made by `look`, and its arguments
        self._first: tuple[VectorEnvironments, tuple[object, ...]] | None = None

    @property
    def is_object(self) -> bool:
        """True if there is a single vector object and no function to make others."""
        return self._build is None

    @property
    def is_sized(self) -> bool:
        """True if the run determines the number of environments."""
        return "num_envs" in self._fills

    @property
    def is_seeded(self) -> bool:
        """True if a vector's seed is fixed at creation."""
        return "seed" in self._fills

    def look(self, n: int | None, seed: int, kwargs: EnvKwargs | None) -> VectorEnvironments:
        """Return the vector that the next call of `environments` with these arguments returns."""
        envs = self.environments(n, seed, kwargs)
        self._first = envs, (envs.n, seed, kwargs)
        return envs

    def environments(
        self,
        n: int | None,
        seed: int,
        kwargs: EnvKwargs | None = None,
        check: Callable[[Any], Any] = lambda vector: vector,
    ) -> VectorEnvironments:
        """Return the vector, ready to be reset: the object, or a new vector, which its `close`
        closes.

        n: required number of environments; None: any. check: called with the vector before it is
        used; returns the one to use. Raises SettingError for a different number."""
        if self._first is not None and self._first[1] == (n, seed, kwargs):
            envs, self._first = self._first[0], None
            return envs
        if self._build is None:
            envs = VectorEnvironments(self.name, check(self._vector), seed, owned=False)
        else:
            vector, self._vector = self._vector, None
            if vector is None:
                vector = self._make(n, seed, 0, kwargs)
            again = partial(self._make, n, seed, kwargs=kwargs)
            remake = again if self.is_seeded else None
            with closed_on_error(vector.close):
                envs = VectorEnvironments(self.name, check(vector), seed, remake=remake)
        if n is not None and envs.n != n:
            envs.close()
            raise other_number(self.name, n, envs.n)
        if self.is_atari:
            envs.clips = envpool.clips(kwargs)
        return envs

    def close(self) -> None:
        """Close vectors that were made for inspection and not used."""
        looked, self._first = self._first, None
        if looked is not None:
            looked[0].close()
        if self._build is not None and self._vector is not None:
            close(self.name, [self._vector])
            self._vector = None

    def _make(self, n: int | None, seed: int, number: int, kwargs: EnvKwargs | None) -> Any:
        """Make a vector for restart `number` of all its episodes."""
        given, at = dict(kwargs or {}), episode_seed(seed, 0, number)
        for name, value in (("num_envs", n), ("seed", at)):
            if name in self._fills and value is not None:
                given.setdefault(name, value)
        assert self._build is not None
        vector = called(self.name, self._build, given)
        if not is_vector(vector):
            raise SettingError(
                f"{self.name} returned {vector!r} of type {type(vector).__name__}.",
                "a gymnasium.vector.VectorEnv",
                "return a vector, such as gymnasium.vector.SyncVectorEnv([make] * 8); pass a "
                "function of single environments as ENV, not --vector.",
            )
        return vector


def brought(env: Any, kwargs: EnvKwargs | None = None) -> tuple[VectorSource | None, Any]:
    """Return (source, None) for a user's vector; otherwise (None, the environment that a function
    returned when it was called for inspection, or None)."""
    if isinstance(env, VectorSource):
        return env, None
    if envpool.is_id(env):
        build = partial(envpool.make_vector, env)
        return VectorSource(env, build, is_atari=envpool.is_atari(env)), None
    if is_vector(env):
        return VectorSource(_spec_id(env) or type(env).__name__, None, env), None
    is_class = isinstance(env, type) and issubclass(env, import_gymnasium().vector.VectorEnv)
    single = has_methods(env, "reset") and not hasattr(env, "num_envs")
    if functions.known(env) is not None or functions.is_one(env):
        return None, None
    if isinstance(env, str) or not callable(env) or (single and not is_class):
        return None, None
    return function_source(env, kwargs, _function_name(env, kwargs))


def function_source(
    function: Callable[..., Any], kwargs: EnvKwargs | None, name: str, path: str = ""
) -> tuple[VectorSource | None, Any]:
    """Return as `brought` does, for a function. A function without `num_envs` is called once to
    find out what it makes."""
    given, fills = dict(kwargs or {}), named_by(function)
    surely = path or "num_envs" in fills or (misfit(function, **given) and "seed" in fills)
    if surely:
        if why := misfit(function, **(given | dict.fromkeys(fills - set(given), 0))):
            raise SettingError(
                f"{name} cannot be called with {', '.join(given) or 'no arguments'}: {why}.",
                "a function of the arguments in env_kwargs, and optionally num_envs and seed",
                "give other arguments in env_kwargs= (--env-kwargs), or build them into the "
                "function.",
            )
        return VectorSource(name, function, path=path), None
    if misfit(function, **given):
        return None, None  # making the environment raises the full error
    vector = called(name, function, given)
    if not is_vector(vector):
        single = hasattr(vector, "unwrapped") and not functions.is_one(vector)
        if single and not given:
            return None, vector
        # it is recreated, or refused, when the environments are made
        if has_methods(vector, "close"):
            vector.close()
        return None, None
    if "seed" in fills:  # it is recreated with the run's seed
        vector.close()
    kept = None if "seed" in fills else vector
    return VectorSource(_spec_id(vector) or name, function, kept, path), None


def named(path: str, kwargs: EnvKwargs | None = None) -> VectorSource:
    """Return the source for "module:function"; the working directory is searched too. Raises
    UnknownNameError if it does not exist."""
    function = named_here(
        path,
        "vector environment function",
        "MODULE:FUNCTION",
        "module:function, such as gymnasium:make_vec",
        accepts=callable,
        offers=callable,
    )
    source, _ = function_source(function, kwargs, _function_name(function, kwargs), path)
    assert source is not None
    return source


def called(name: str, build: Callable[..., Any], kwargs: EnvKwargs) -> Any:
    """Call `build` and return its vector. Processes that it forks ignore Ctrl-C and SIGHUP, so that
    the current block is finished. A signal that arrives during the call is handled afterwards."""
    with _interrupts_later():
        return guarded(name, lambda: build(**kwargs))


@contextmanager
def _interrupts_later() -> Iterator[None]:
    came: list[int] = []
    # forked processes inherit the handlers; only the main thread can set them
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {n: signal.signal(n, lambda number, _: came.append(number)) for n in FROM_TERMINAL}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        if came:
            signal.raise_signal(came[0])


def _function_name(function: Callable[..., object], kwargs: EnvKwargs | None) -> str:
    """Return the id in `kwargs` if there is one (as for `gymnasium.make_vec`), otherwise the
    function's name."""
    if isinstance(identity := (kwargs or {}).get("id"), str):
        return identity
    inner = function.func if isinstance(function, partial) else function
    return str(getattr(inner, "__name__", type(inner).__name__))


def _spec_id(vector: object) -> str:
    return str(getattr(spec_of(vector), "id", None) or "")


def named_by(function: Callable[..., object] | None) -> set[str]:
    """Return the arguments in `FILLED` that a function has."""
    try:
        parameters = inspect.signature(function).parameters if function is not None else {}
    except (TypeError, ValueError):  # written in C
        return set()
    taken = function.keywords if isinstance(function, partial) else {}
    return {name for name in FILLED if name in parameters and name not in taken}


def other_number(name: str, asked: int, there: int) -> SettingError:
    return SettingError(
        f"envs={asked} does not match {name}, a vector of {there} environments.",
        "the vector's number of environments",
        f"leave envs out, or give envs={there}; or make a vector of {asked}.",
    )
