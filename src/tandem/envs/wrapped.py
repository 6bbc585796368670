"""`--wrapper`: named wrappers around a named environment, in training and evaluation."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from tandem.envs.envpool import is_id
from tandem.envs.ids import import_gymnasium
from tandem.errors import SettingError, brief
from tandem.settings import named_here


class Wrapped(str):
    """An id or module:Name whose environments are made with `wrappers`, the last one outermost. It
    equals the plain text, as used in files and messages."""

    wrappers: tuple[str, ...]

    def __new__(cls, env: str, wrappers: Sequence[str]) -> Wrapped:
        made = super().__new__(cls, env)
        made.wrappers = tuple(wrappers)
        return made

    def __reduce__(self) -> tuple[object, ...]:
        return Wrapped, (str(self), self.wrappers)

    def around(self, made: Callable[[str], Any]) -> Any:
        """Return `made(text)` with all wrappers. Raises UnknownNameError for an unknown wrapper,
        SettingError if a wrapper cannot be made."""
        kinds = [_read(wrapper) for wrapper in self.wrappers]
        env = made(str(self))
        for wrapper, (kind, arguments) in zip(self.wrappers, kinds, strict=True):
            try:
                env = kind(env, **arguments)
            except Exception as error:
                env.close()
                example = f"""'{kind.__module__}:{kind.__name__}:{{"name": 4}}'"""
                raise SettingError(
                    f"the wrapper {wrapper} cannot be made: {type(error).__name__}: {brief(error)}",
                    "a wrapper of this environment, with its arguments as JSON",
                    f"leave it out, or correct its arguments: --wrapper {example}.",
                ) from error
        return env


def wrapped(env: object, wrappers: Sequence[str] | None) -> Any:
    """Add wrappers by name, module:Class or module:Class:{JSON}, to `env`. Raises SettingError for
    objects without a name, and for vectors."""
    if not wrappers:
        return env
    if not isinstance(env, str) or is_id(env):
        shown = env if isinstance(env, str) else getattr(env, "name", type(env).__name__)
        raise SettingError(
            f"wrappers={list(wrappers)!r} with {shown}, which is a vector or has no name.",
            "an environment by its id or as module:Name, such as CartPole-v1",
            "leave wrappers out, and wrap the environment in the function that makes it.",
        )
    return Wrapped(env, wrappers)


def _read(wrapper: str) -> tuple[Any, dict[str, Any]]:
    """Return the class and the arguments of a wrapper."""
    module, _, rest = wrapper.partition(":")
    name, colon, text = rest.partition(":")
    kind = named_here(
        f"{module}:{name}",
        "wrapper",
        "MODULE:CLASS",
        "module:Class of a gymnasium.Wrapper, as in gymnasium.wrappers:FlattenObservation",
        accepts=_is_wrapper,
        offers=_is_wrapper,
    )
    try:
        arguments = json.loads(text) if colon else {}
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        raise SettingError(
            f"the wrapper {wrapper} has the arguments {text}.",
            "a JSON object",
            f"""write it in quotes: --wrapper '{module}:{name}:{{"n": 4}}'.""",
        )
    return kind, arguments


def _is_wrapper(found: object) -> bool:
    return isinstance(found, type) and issubclass(found, import_gymnasium().Wrapper)
