"""Ids of Gymnasium's: what registers them, what making one says, and what is missing."""

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
# whose ids are made without Gymnasium's registry, beside families of JAX's functions
_UNREGISTERED = (*FAMILIES, "butterfly", "classic", "envpool", "mpe", "sisl")
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


Made = TypeVar("Made")

# what came of having a plug-in register its ids
_registrations: dict[plugins.Plugin, list[str] | PluginError] = {}


def register(name: str) -> None:
    """Sees to it that the module that registers an id of this namespace is imported."""
    expect_module(name)
    namespace, slash, _ = name.partition("/")
    if slash and namespace in NAMESPACES:
        importlib.import_module(NAMESPACES[namespace])
    if module := name.rpartition(":")[0]:
        module_here(module)  # Gymnasium itself does not look into the working directory
    if name.startswith(_ROBOTICS):
        robotics = importlib.import_module("gymnasium_robotics")
        # once: a second time Gymnasium warns of every id that it has
        if not any(known.startswith(_ROBOTICS) for known in import_gymnasium().registry):
            robotics.register_robotics_envs()
    plugged(name)


def is_taken(namespace: str) -> bool:
    """Whether ids of this namespace are tandem's to make."""
    return namespace in NAMESPACES or namespace in _UNREGISTERED


def plugged(name: str) -> None:
    """Sees to it that installed packages have registered an id, if one of them does: the one whose
    entry point is called as the id's namespace; of an id that nobody has registered, any.
    PluginError where that first one cannot be used."""
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
    """Whether nobody has registered an id with Gymnasium, installed packages among them, whom this
    asks. Not of module:Id, whose module is asked when it is made, nor of ids that Gymnasium does
    not make. PluginError where the package that has its namespace cannot be used."""
    namespace = name.partition("/")[0]
    if ":" in name or is_taken(namespace) or name.startswith(_ROBOTICS):
        return False
    plugged(name)
    return not _is_there(name)


def origin(name: str) -> dict[str, str]:
    """What an id that is registered here comes from, for the one who misses it elsewhere: "env",
    the package and its version, of a plug-in; else "env_module", the module that has its class."""
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
    """Gymnasium, imported when it is first needed: `tandem train --help` starts without it."""
    import gymnasium

    return gymnasium


def _module(spec: Any) -> str:
    entry = spec.entry_point
    return entry.partition(":")[0] if isinstance(entry, str) else getattr(entry, "__module__", "")


def _is_there(name: str) -> bool:
    """Whether Gymnasium knows an id, which may have no version."""
    return name in import_gymnasium().registry or any(
        other.startswith(f"{name}-v") for other in import_gymnasium().registry
    )


def registered(plugin: plugins.Plugin) -> list[str]:
    """The ids that a plug-in has registered, which it is imported, and called, for. PluginError
    where it cannot be, or registers again what is there."""
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
    package = plugin.value.partition(":")[0].partition(".")[0]  # imported before, perhaps
    owners = {name: str(spec.entry_point).partition(".")[0] for name, spec in ids.items()}
    return [name for name, owner in owners.items() if name not in before or owner == package]


def _is_other(now: Any | None, before: Any) -> bool:
    """Whether two specs of an id make different environments."""
    if now is before:
        return False
    return (
        now is None
        or now.entry_point != before.entry_point
        or repr(now.kwargs) != repr(before.kwargs)
    )


def attribute(name: str) -> Callable[..., object] | None:
    """The class or function that module:Name names, where importing the module registers no id
    Name; else None."""
    module, colon, own = name.rpartition(":")
    found = getattr(module_here(module), own, None) if colon else None
    return found if callable(found) and own not in import_gymnasium().registry else None


def guarded(name: str, build: Callable[[], Made]) -> Made:
    """Returns what `build` returns; errors of Gymnasium become errors of this library."""
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
        # whatever an environment says of arguments that it does not take: KeyError, AssertionError
        raise SettingError(
            f"the environment {name} cannot be created: {type(fault).__name__}: {fault}",
            "an id, or module:Name of a class or function, with valid arguments",
            "correct the id, the function or the arguments (env_kwargs=, --env-kwargs).",
        ) from fault


def _is_of(name: str, module: str) -> bool:
    """Whether an id's class is in a module, or in the package of it."""
    return _module(import_gymnasium().registry[name]).partition(".")[0] == module.partition(".")[0]


def _unknown(name: str, registered: Iterable[str]) -> UnknownNameError:
    """The error for an id that nobody has registered: a slip, or another package's, which is to be
    imported first."""
    known = [other for other in (*registered, *WORLDS) if ":" not in other]
    prefix, colon, own = name.rpartition(":")  # of module:Id, whose module has been imported
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
