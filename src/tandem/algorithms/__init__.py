"""The algorithms, one module per paper, and their names; `base` has the shared base class. Each
algorithm is written once for all frameworks, against `backends.backend`. Modules may import lower
layers, but not `replay`: an algorithm receives batches."""

from __future__ import annotations

import importlib
import re
from typing import TYPE_CHECKING, Any

from tandem import plugins
from tandem.errors import UnknownNameError
from tandem.settings import Schedule
from tandem.spaces import Leaf

if TYPE_CHECKING:
    from tandem.algorithms.base import Algorithm

__all__ = ["NAMES", "Schedule", "built_in", "for_actions", "get", "name_of", "names", "title"]

# built-in algorithms: module -> class; `names()` includes those of plugins
NAMES = {
    "a2c": "A2C",
    "a3c": "A3C",
    "acer": "ACER",
    "crossq": "CrossQ",
    "ddpg": "DDPG",
    "dqn": "DQN",
    "impala": "IMPALA",
    "maddpg": "MADDPG",
    "mappo": "MAPPO",
    "mat": "MAT",
    "nstep_q": "NStepQ",
    "ppo": "PPO",
    "pqn": "PQN",
    "qmix": "QMIX",
    "sac": "SAC",
    "td3": "TD3",
    "tqc": "TQC",
    "trpo": "TRPO",
    "vdn": "VDN",
}


CLASS = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*\Z")

# (module, type of actions) -> (module, class) of the variant for such actions
FOR_CHOICES = {
    ("maddpg", "multidiscrete"): ("maddpg", "DiscreteMADDPG"),
    ("sac", "discrete"): ("sac_discrete", "DiscreteSAC"),
}


def names() -> tuple[str, ...]:
    """Return the names of all algorithms: tandem's own, and those of installed packages."""
    return tuple(dict.fromkeys((*NAMES, *plugins.found("algorithms"))))


def built_in() -> dict[str, type[Algorithm]]:
    """Return the classes of tandem's own algorithms by name."""
    return {name: _load(name, NAMES[name]) for name in NAMES}


def get(name: str | type, action: Leaf | None = None) -> Any:
    """Return the Algorithm class of that name, or `name` itself if it is a class; with `action`,
    the variant for such actions. Raise UnknownNameError for an unknown name, and PluginError if an
    installed package provides the algorithm but it cannot be used."""
    if isinstance(name, type):
        return name if action is None else for_actions(name, action)
    if not isinstance(name, str) or name not in names():
        own = isinstance(name, str) and ":" in name
        fix = "import the class, and give it instead of its name." if own else ""
        raise UnknownNameError("algorithm", name, names(), fix)
    if name in NAMES:
        plugins.refuse_clash("algorithms", name)
        kind = _load(name, NAMES[name])
    else:
        kind = _plugged(plugins.found("algorithms")[name])
    return kind if action is None else for_actions(kind, action)


def _plugged(plugin: plugins.Plugin) -> type[Algorithm]:
    from tandem.algorithms.base import Algorithm  # circular import

    plugin.refuse_clash(ours=False)
    kind = plugin.load()
    if not (isinstance(kind, type) and issubclass(kind, Algorithm)):
        raise plugin.fault(
            f"is {kind!r}.",
            "a class that derives from tandem.Algorithm, as MODULE:CLASS",
            "name such a class there (docs/advanced/extending.md)",
        )
    return kind


def for_actions(kind: type[Algorithm], action: Leaf) -> Any:
    """Return `kind`, or its variant for discrete actions."""
    package, _, module = kind.__module__.rpartition(".")
    variant = FOR_CHOICES.get((module, action.kind)) if package == __name__ else None
    return _load(*variant) if variant else kind


def name_of(algorithm: str | type) -> str:
    """Return the name of an algorithm in files and messages: its name in `tandem list`, or
    module:Class."""
    if isinstance(algorithm, str):
        return algorithm
    package, _, module = algorithm.__module__.rpartition(".")
    place = (module, algorithm.__name__)
    if package == __name__:
        variants = {of: name for (name, _), of in FOR_CHOICES.items()}
        name = module if NAMES.get(module) == place[1] else variants.get(place)
        if name is not None:
            return name
    for plugin in plugins.found("algorithms").values():
        if plugin.loaded() is algorithm and not plugin.others and plugin.name not in NAMES:
            return plugin.name
    return f"{algorithm.__module__}:{algorithm.__qualname__}"


def is_class(word: str) -> bool:
    """Return True if the word names a custom class, as module:Class."""
    return CLASS.match(word) is not None


def title(name: str) -> str:
    """Return the display name of an algorithm: CrossQ for crossq, and MyDQN for
    my_module:MyDQN."""
    _, own, kind = name.rpartition(":")
    return kind if own else NAMES.get(name, name.upper())


def _load(module: str, name: str) -> Any:
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
