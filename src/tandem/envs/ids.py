"""Ids of Gymnasium's: what registers them, what making one says, and what is missing."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from typing import Any

from tandem.envs.functions import WORLDS
from tandem.errors import EngineError, SettingError, TandemError, UnknownNameError, nearest

# modules that register ids when imported
NAMESPACES = {
    "ALE": "ale_py",
    "tandem": "tandem.testing.environments",
}
# beginnings of ids that Gymnasium-Robotics registers
_ROBOTICS = (
    "Fetch",
    "HandReach",
    "HandManipulate",
    "AdroitHand",
    "FrankaKitchen",
    "PointMaze",
    "AntMaze",
)
# beginning of an id -> the module of another package that registers it
_MODULES = {
    "MiniGrid-": "minigrid",
    "BabyAI-": "minigrid",
    "highway-": "highway_env",
    "mo-": "mo_gymnasium",
}
# part of an entry point or id -> extra of tandem-rl
_EXTRAS = {
    "box2d": "box2d",
    "robotics": "robotics",
    **{start.lower(): "robotics" for start in _ROBOTICS},
    "mujoco": "mujoco",
    "ale": "atari",
}


def register(name: str) -> None:
    """Sees to it that the module that registers an id of this namespace is imported."""
    namespace, slash, _ = name.partition("/")
    if slash and namespace in NAMESPACES:
        importlib.import_module(NAMESPACES[namespace])
    if name.startswith(_ROBOTICS):
        robotics = importlib.import_module("gymnasium_robotics")
        from gymnasium import registry

        # once: a second time Gymnasium warns of every id that it has
        if not any(known.startswith(_ROBOTICS) for known in registry):
            robotics.register_robotics_envs()


def guarded(name: str, build: Callable[[], Any]) -> Any:
    """Returns what `build` returns; errors of Gymnasium become errors of this library."""
    from gymnasium import error, registry

    try:
        register(name)
        return build()
    except (error.UnregisteredEnv, error.DeprecatedEnv) as fault:
        raise _unknown(name, registry) from fault
    except (error.DependencyNotInstalled, ImportError) as fault:
        entry = f"{name} {getattr(registry.get(name), 'entry_point', '')}".lower()
        extra = next((extra for part, extra in _EXTRAS.items() if part in entry), None)
        raise EngineError(
            f"the environment {name} needs a package that is not installed: {fault}",
            "the packages of the environment beside tandem",
            f'pip install "tandem-rl[{extra}]"'
            if extra
            else "install the package that the message above names.",
        ) from fault
    except TandemError:
        raise
    except Exception as fault:
        # whatever an environment says of arguments that it does not take: KeyError, AssertionError
        raise SettingError(
            f"the environment {name} cannot be made: {type(fault).__name__}: {fault}",
            "an id in the form of Name-v0 or module:Name-v0, or a function, and arguments that it "
            "takes",
            "correct the id, the function or the arguments (env_kwargs=, --env-kwargs).",
        ) from fault


def _unknown(name: str, registered: Iterable[str]) -> UnknownNameError:
    """The error for an id that nobody has registered: a slip, or another package's, which is to be
    imported first."""
    known = [other for other in (*registered, *WORLDS) if ":" not in other]
    prefix, colon, own = name.rpartition(":")  # of module:Id, whose module has been imported
    close = [prefix + colon + other for other in nearest(own, known)]
    module = next((m for start, m in _MODULES.items() if name.startswith(start)), "")
    by_module = f"{module or 'module'}:{name}"
    fix = f"put the module that registers it before it: {by_module}"
    if prefix:
        fix = f"give an id that importing {prefix} registers."
    if close and not module:
        fix = f"did you mean {' or '.join(map(repr, close))}? Else {fix}"
    return UnknownNameError(
        "environment",
        name,
        known,
        fix,
        'a registered id, as `python -c "import gymnasium; gymnasium.pprint_registry()"` lists '
        "them, or module:Id",
    )
