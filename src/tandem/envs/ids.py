"""Gymnasium ids: registration, errors on creation, and missing packages."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from types import ModuleType
from typing import Any, TypeVar

from tandem import plugins
from tandem.envs.calls import attributes_of
from tandem.envs.functions import FAMILIES, WORLDS
from tandem.errors import (
    EngineError,
    PluginError,
    SettingError,
    TandemError,
    UnknownNameError,
    nearest,
)
from tandem.settings import expect_module, module_here

# modules that register ids when imported
NAMESPACES = {
    "ALE": "ale_py",
    "tandem": "tandem.testing.environments",
}
# namespaces, such as functional JAX families, whose ids do not use Gymnasium's registry
_UNREGISTERED = (*FAMILIES, "butterfly", "classic", "envpool", "mpe", "sisl")
# prefixes of ids that Gymnasium-Robotics registers
_ROBOTICS = (
    "Fetch",
    "HandReach",
    "HandManipulate",
    "AdroitHand",
    "FrankaKitchen",
    "PointMaze",
    "AntMaze",
)
# id prefix -> module of another package that registers it
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


Made = TypeVar("Made")

# ids registered by each plug-in, or the error
_registrations: dict[plugins.Plugin, list[str] | PluginError] = {}


def register(name: str) -> None:
    """Import the module that registers ids of this namespace."""
    expect_module(name)
    namespace, slash, _ = name.partition("/")
    if slash and namespace in NAMESPACES:
        importlib.import_module(NAMESPACES[namespace])
    if module := name.rpartition(":")[0]:
        module_here(module)  # Gymnasium itself does not search the working directory
    if name.startswith(_ROBOTICS):
        robotics = importlib.import_module("gymnasium_robotics")
        # only once: repeated registration makes Gymnasium warn for every id
        if not any(known.startswith(_ROBOTICS) for known in import_gymnasium().registry):
            robotics.register_robotics_envs()
    plugged(name)


def is_taken(namespace: str) -> bool:
    """Return true if tandem itself makes the ids of this namespace."""
    return namespace in NAMESPACES or namespace in _UNREGISTERED


def plugged(name: str) -> None:
    """Let installed packages register an id: the one whose entry point is named like the id's
    namespace, and for an id that is still unregistered, all others. Raises PluginError if the
    first one is unusable."""
    namespace, slash, _ = name.partition("/")
    brought = plugins.found("environments")
    if not brought or ":" in name or (slash and is_taken(namespace)) or _is_there(name):
        return
    if slash and namespace in brought:
        registered(brought[namespace])
    if not _is_there(name):
        for plugin in brought.values():
            plugins.attempt(partial(registered, plugin))


def is_missing(name: str) -> bool:
    """Return true if neither Gymnasium nor an installed package, which this loads, registers an id.
    Returns false for module:Id, which is looked up on creation, and for ids that Gymnasium does
    not make. Raises PluginError if the package with the id's namespace is unusable."""
    namespace = name.partition("/")[0]
    if ":" in name or is_taken(namespace) or name.startswith(_ROBOTICS):
        return False
    plugged(name)
    return not _is_there(name)


def origin(name: str) -> dict[str, str]:
    """Return the origin of a registered id, for error messages on systems without it: "env", a
    plug-in's package and version; otherwise "env_module", the module of its class."""
    spec = import_gymnasium().registry.get(name)
    if spec is None or ":" in name:
        return {}
    module = _module(spec)
    package = module.partition(".")[0]
    for plugin in plugins.found("environments").values():
        came = _registrations.get(plugin)
        of_it = plugin.value.partition(":")[0].partition(".")[0] == package
        if of_it or (isinstance(came, list) and name in came):
            return {"env": plugin.source}
    return {} if package in ("", "__main__", "gymnasium", "tandem") else {"env_module": module}


def import_gymnasium() -> ModuleType:
    """Import Gymnasium when it is first needed, so that `tandem train --help` starts without it."""
    import gymnasium

    return gymnasium


def _module(spec: Any) -> str:
    entry = spec.entry_point
    return entry.partition(":")[0] if isinstance(entry, str) else getattr(entry, "__module__", "")


def _is_there(name: str) -> bool:
    """Return true if Gymnasium knows an id, possibly without its version."""
    return name in import_gymnasium().registry or any(
        other.startswith(f"{name}-v") for other in import_gymnasium().registry
    )


def registered(plugin: plugins.Plugin) -> list[str]:
    """Import and call a plug-in, and return the ids that it registers. Raises PluginError if that
    fails or if it overrides existing ids."""
    came = _registrations.get(plugin)
    if came is None:
        try:
            came = _register_ids(plugin)
        except PluginError as error:
            came = error
        _registrations[plugin] = came
    if isinstance(came, PluginError):
        raise came
    return came


def _register_ids(plugin: plugins.Plugin) -> list[str]:
    plugin.refuse_clash(is_taken(plugin.name))
    ids = import_gymnasium().registry
    before = dict(ids)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?s).*Overriding environment")  # an error, below
        module = plugin.load()
        if plugin.value.partition(":")[2]:
            try:
                module()
            except (Exception, SystemExit) as error:
                raise plugin.broken(error) from error
    if lost := [name for name, spec in before.items() if _is_other(ids.get(name), spec)]:
        ids.update({name: before[name] for name in lost})
        raise plugin.fault(
            f"registers what is there already: {', '.join(lost)}.",
            "ids of its own",
            f"give them a namespace, as in {plugin.name}/{lost[0].rpartition('/')[2]}",
        )
    package = plugin.value.partition(":")[0].partition(".")[0]  # possibly imported before
    owners = {name: str(spec.entry_point).partition(".")[0] for name, spec in ids.items()}
    return [name for name, owner in owners.items() if name not in before or owner == package]


def _is_other(now: Any | None, before: Any) -> bool:
    """Return true if two specs of an id make different environments."""
    if now is before:
        return False
    return (
        now is None
        or now.entry_point != before.entry_point
        or repr(now.kwargs) != repr(before.kwargs)
    )


def attribute(name: str) -> Callable[..., object] | None:
    """Return the class or function module:Name; None if importing the module registers an id
    Name."""
    module, colon, own = name.rpartition(":")
    found = getattr(module_here(module), own, None) if colon else None
    return found if callable(found) and own not in import_gymnasium().registry else None


def guarded(name: str, build: Callable[[], Made]) -> Made:
    """Return `build()`, with Gymnasium's errors converted to tandem's."""
    error = import_gymnasium().error
    try:
        register(name)
        return build()
    except (error.UnregisteredEnv, error.DeprecatedEnv) as fault:
        raise _unknown(name, import_gymnasium().registry) from fault
    except (error.DependencyNotInstalled, ImportError) as fault:
        spec = import_gymnasium().registry.get(name)
        entry = f"{name} {spec.entry_point if spec else ''}".lower()
        extra = next((extra for part, extra in _EXTRAS.items() if part in entry), None)
        raise EngineError(
            f"the environment {name} needs a package that is not installed: {fault}",
            "the environment's own packages",
            f'pip install "tandem-rl[{extra}]"'
            if extra
            else "install the package named above; custom modules are found in the current folder "
            "and on PYTHONPATH.",
        ) from fault
    except TandemError:
        raise
    except Exception as fault:
        # environments raise any type for invalid arguments: KeyError, AssertionError
        raise SettingError(
            f"the environment {name} cannot be created: {type(fault).__name__}: {fault}",
            "an id, or module:Name of a class or function, with valid arguments",
            "correct the id, the function or the arguments (env_kwargs=, --env-kwargs).",
        ) from fault


def _is_of(name: str, module: str) -> bool:
    """Return true if an id's class is in the same top-level package as a module."""
    return _module(import_gymnasium().registry[name]).partition(".")[0] == module.partition(".")[0]


def _unknown(name: str, registered: Iterable[str]) -> UnknownNameError:
    """Return the error for an unregistered id: a typo, or an id whose package must be imported
    first."""
    known = [other for other in (*registered, *WORLDS) if ":" not in other]
    prefix, colon, own = name.rpartition(":")  # for module:Id, whose module is imported by now
    if prefix:
        known = [other for other in known if other in registered and _is_of(other, prefix)]
        held = attributes_of(module_here(prefix))
        known += [n for n, x in held.items() if isinstance(x, type) and hasattr(x, "step")]
    close = [prefix + colon + other for other in nearest(own, known)]
    module = next((m for start, m in _MODULES.items() if name.startswith(start)), "")
    by_module = f"{module or 'module'}:{name}"
    fix = f"put the module that registers it before it: {by_module}"
    if prefix:
        fix = f"give a class or function of {prefix}, or an id that importing it registers."
    if broken := [p.title for p, came in _registrations.items() if isinstance(came, PluginError)]:
        fix += f" (not available here: {', '.join(broken)}; `tandem list` shows why)"
    if close and not module:
        fix = f"did you mean {' or '.join(map(repr, close))}? Else {fix}"
    return UnknownNameError(
        "environment",
        name,
        known,
        fix,
        'a registered id from `python -c "import gymnasium; gymnasium.pprint_registry()"`, or '
        "module:Name",
    )
