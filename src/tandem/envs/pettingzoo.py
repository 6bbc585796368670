"""PettingZoo and mpe2 environments: lookup by id, and their interfaces."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import re
import warnings
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from tandem.envs.calls import has_methods, metadata_of
from tandem.errors import EngineError, UnknownNameError


def ids(*families: str) -> list[str]:
    """Return the installed PettingZoo and mpe2 environments of these families, as FAMILY/NAME."""
    found = []
    for family in families:
        with suppress(ImportError):  # the package is not installed
            spec = importlib.util.find_spec(_package(family))
            places = (spec and spec.submodule_search_locations) or []
            names = [m.name for m in pkgutil.iter_modules(places)]
            found += [f"{family}/{name}" for name in names if re.search(r"_v\d+$", name)]
    return found


def _package(family: str) -> str:
    return "mpe2" if family == "mpe" else f"pettingzoo.{family}"


def by_id(name: str, kind: str, known: Iterable[str]) -> Any:
    """Import the module of the environment FAMILY/NAME: from mpe2 for "mpe/simple_spread_v3",
    otherwise from PettingZoo.

    kind, known: for error messages: the type of the name, and the known names.

    Raises EngineError if a package is not installed, UnknownNameError for an unknown name.
    """
    family, _, game = name.partition("/")
    path = f"{_package(family)}.{game}"
    try:
        with warnings.catch_warnings():
            # importing a game triggers PettingZoo's warnings about its own API
            warnings.simplefilter("ignore", DeprecationWarning)
            module = importlib.import_module(path)
    except ModuleNotFoundError as error:
        if error.name != path:
            raise EngineError(
                f"the {kind} {name!r} needs {error.name}, which is not installed.",
                "PettingZoo or mpe2, and the environment's own dependencies",
                "pip install 'tandem-rl[marl]', or 'pettingzoo[classic]' for single games",
            ) from error
        raise UnknownNameError(kind, name, known) from error
    if not hasattr(module, "env"):
        raise UnknownNameError(kind, name, known)
    return module


def in_turn(env: Any) -> bool:
    """Return true for PettingZoo's AEC interface. Custom classes may set `agent_selection` only in
    `reset`, and parallel environments may have a method `observe` too."""

    def takes_turns() -> bool:
        return any(hasattr(env, name) for name in ("agent_selection", "agent_iter", "last"))

    if not hasattr(env, "possible_agents") or not has_methods(env, "observe"):
        return False
    if not takes_turns():
        with suppress(Exception):  # the actual reset will raise it again
            env.reset(seed=0)
    return takes_turns()


def together(env: object) -> bool:
    """Return true if a multi-agent environment declares that agents can move simultaneously."""
    return bool(metadata_of(env).get("is_parallelizable", False))
