"""Environments of PettingZoo's, and of mpe2: by their ids, and what they say of themselves."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterable
from typing import Any

from tandem.errors import EngineError, UnknownNameError


def by_id(name: str, kind: str, known: Iterable[str]) -> Any:
    """The module of FAMILY/NAME: "mpe/simple_spread_v3" is of mpe2, the others of PettingZoo.
    EngineError where a package is not installed, UnknownNameError, for a `kind` of which some names
    are `known`, where there is none of that name."""
    family, _, game = name.partition("/")
    module = f"{'mpe2' if family == 'mpe' else f'pettingzoo.{family}'}.{game}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", DeprecationWarning
            )  # of importing a game, by which PettingZoo means its own API
            found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise EngineError(
                f"the {kind} {name!r} needs {error.name}, which is not installed here.",
                "PettingZoo or mpe2, and what the environment itself is made with",
                "pip install 'tandem-rl[marl]', or 'pettingzoo[classic]' for what single games "
                "need",
            ) from error
        raise UnknownNameError(kind, name, known) from error
    if not hasattr(found, "env"):
        raise UnknownNameError(kind, name, known)
    return found


def together(env: Any) -> bool:
    """Whether an environment of several agents says that they may move together."""
    return bool((getattr(env, "metadata", None) or {}).get("is_parallelizable", False))
