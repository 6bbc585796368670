"""An environment's first reset, which also shows what it returns: whether its info has action
masks, how many numbers a team observes. Looking at that costs no reset of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from tandem.envs.calls import attributes_of, spec_of
from tandem.envs.vector import opened

_KEPT = "_tandem_first_reset"  # an attribute of the environment, so that copies have it, too
_seed: ContextVar[int] = ContextVar("seed", default=0)


@contextmanager
def opening(seed: int, env: object = None) -> Iterator[None]:
    """Within it, `look` resets environments with the seed of the episode that they begin with.

    env: an object that may have been stepped since an earlier look, which is forgotten."""
    attributes_of(env).pop(_KEPT, None)
    token = _seed.set(seed)
    try:
        yield
    finally:
        _seed.reset(token)


def look(env: Any) -> tuple[Any, Any]:
    """The result of the environment's first `reset`; it is reset if it was not looked at before."""
    kept = attributes_of(env).get(_KEPT)
    if kept is None:
        given = {"seed": _seed.get()}
        kept = attributes_of(env)[_KEPT] = given, opened(_name(env), env.reset(**given))
    return kept[1]


def amend(env: Any, came: tuple[Any, Any]) -> None:
    """Keeps `came` instead of what `look` returned."""
    attributes_of(env)[_KEPT] = attributes_of(env)[_KEPT][0], came


def reset(env: Any, **given: object) -> tuple[Any, Any]:
    """`env.reset(**given)`; right after a look with the same seed, what that returned."""
    kept = attributes_of(env).pop(_KEPT, None)
    if kept is not None and kept[0] == given:
        return kept[1]
    return opened(_name(env), env.reset(**given))


def _name(env: Any) -> str:
    spec = spec_of(env)
    return str(spec.id) if spec is not None else type(getattr(env, "unwrapped", env)).__name__
