"""An environment's first reset, reused to inspect its results (action masks in its info, a team's
observation size), so that inspection needs no additional reset."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from tandem.envs.calls import attributes_of, spec_of
from tandem.envs.checks import opened

_KEPT = "_tandem_first_reset"  # an attribute of the environment, so that copies include it
_seed: ContextVar[int] = ContextVar("seed", default=0)


@contextmanager
def opening(seed: int, env: object = None) -> Iterator[None]:
    """Within the block, make `look` reset environments with the seed of their first episode.

    env: an object whose earlier look is discarded, since it may have been stepped since."""
    attributes_of(env).pop(_KEPT, None)
    token = _seed.set(seed)
    try:
        yield
    finally:
        _seed.reset(token)


def look(env: Any) -> tuple[Any, Any]:
    """Return the result of the environment's first `reset`, resetting it if this is the first
    look."""
    kept = attributes_of(env).get(_KEPT)
    if kept is None:
        given = {"seed": _seed.get()}
        kept = attributes_of(env)[_KEPT] = given, opened(_name(env), env.reset(**given))
    return kept[1]


def amend(env: Any, came: tuple[Any, Any]) -> None:
    """Replace the stored result of `look` by `came`."""
    attributes_of(env)[_KEPT] = attributes_of(env)[_KEPT][0], came


def reset(env: Any, **given: object) -> tuple[Any, Any]:
    """Return `env.reset(**given)`, reusing the result of a preceding look with the same seed."""
    kept = attributes_of(env).pop(_KEPT, None)
    if kept is not None and kept[0] == given:
        return kept[1]
    return opened(_name(env), env.reset(**given))


def _name(env: Any) -> str:
    spec = spec_of(env)
    return str(spec.id) if spec is not None else type(getattr(env, "unwrapped", env)).__name__
