"""Plug-ins of installed packages: entry points of the groups `tandem.algorithms`,
`tandem.environments`, `tandem.writers` and `tandem.zoo` (docs/advanced/extending.md).

Their metadata is read once, when a name is looked up; a package is imported when its plug-in is
used. Whoever installed a package vouches for its entry points: they are the only way in which a
name in a file or a command leads to an import.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, reduce
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from tandem.errors import PluginError
from tandem.settings import FOLDERS

KINDS = {  # group, without "tandem." -> description of one of its entry points
    "algorithms": "algorithm",
    "environments": "family of environments",
    "writers": "writer",
    "zoo": "collection of settings",
}
TANDEM = "tandem-rl"
NAME = re.compile(r"[A-Za-z][\w-]*\Z", re.ASCII)


@dataclass(frozen=True)
class Plugin:
    """One entry point.

    value: MODULE or MODULE:ATTRIBUTE.
    package: the distribution that provides it.
    version: the version of that distribution.
    others: further packages, with versions, that have the same name in this group.
    """

    group: str
    name: str
    value: str
    package: str
    version: str
    others: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        """The package and its version."""
        return f"{self.package} {self.version}"

    @property
    def title(self) -> str:
        """Description for messages."""
        return f"the {KINDS[self.group]} {self.name!r} of {self.source}"

    def fault(self, happened: str, expected: str, fix: str = "") -> PluginError:
        """Return the error for a plug-in that cannot be used. `happened` continues its title."""
        fix = fix or "fix it there"
        return PluginError(
            f"{self.title} {happened}", expected, f"{fix}; or pip uninstall {self.package}."
        )

    def refuse_clash(self, ours: bool) -> None:
        """Raise PluginError if another package, or tandem (`ours`), has the same name in the
        group."""
        rivals = [*([TANDEM] if ours else []), *self.others]
        if rivals:
            raise PluginError(
                f"{' and '.join([*rivals, self.source])} both provide the {KINDS[self.group]} "
                f"{self.name!r}."
                if len(rivals) == 1
                else f"{', '.join([*rivals, self.source])} all provide the {KINDS[self.group]} "
                f"{self.name!r}.",
                "each name from one package only",
                f"pip uninstall {self.package}, or give its entry point of the group "
                f"tandem.{self.group} another name.",
            )
        if not NAME.match(self.name):
            raise self.fault(
                "has a name that is not valid in commands and folders.",
                "letters, digits, _ and -, starting with a letter",
                "give its entry point another name",
            )

    def load(self) -> Any:
        """Import the module or object. Raises PluginError if that fails."""
        module, _, attribute = self.value.partition(":")
        try:
            return reduce(getattr, filter(None, attribute.split(".")), import_module(module))
        except (Exception, SystemExit) as error:  # a package's code may raise anything
            raise self.broken(error) from error

    def broken(self, error: BaseException) -> PluginError:
        """Return the error for an `error` raised by its code or by the lookup."""
        why = " ".join(str(error).split()) or "no message"
        return self.fault(
            f"({self.value}) cannot be loaded: {type(error).__name__}: {why}",
            "an importable entry point",
            f"install what it needs, or another version: pip install --upgrade {self.package}",
        )

    def loaded(self) -> Any:
        """Return the module or object if its module has been imported, else None."""
        module, _, attribute = self.value.partition(":")
        at = sys.modules.get(module)
        for name in filter(None, attribute.split(".")):
            at = getattr(at, name, None)
        return at


@cache
def found(group: str) -> Mapping[str, Plugin]:
    """Return the plug-ins of a group by name, in alphabetical order, without importing any."""
    by_name: dict[str, list[Plugin]] = {}
    for point in _all_points().select(group=f"tandem.{group}"):
        if point.dist is not None and str(point.dist.locate_file("")) in FOLDERS:
            continue  # a user's working folder is not an installed package
        value = point.value.partition("[")[0].strip()  # extras have no meaning here
        plugin = Plugin(group, point.name, value, *_package(point))
        known = by_name.setdefault(point.name, [])
        if plugin not in known:
            known.append(plugin)
    one_of_each = {}
    for name in sorted(by_name):
        first, *others = sorted(by_name[name], key=lambda p: (p.package, p.value))
        others_of = tuple(p.source for p in others)
        one_of_each[name] = Plugin(
            group, name, first.value, first.package, first.version, others_of
        )
    return one_of_each


@cache
def _all_points() -> Any:
    return entry_points()


def _package(point: EntryPoint) -> tuple[str, str]:
    """Return the name and version of an entry point's distribution."""
    dist = point.dist
    if dist is None:
        return "a package", "without metadata"
    return str(dist.name), str(dist.version)


def refuse_clash(group: str, name: str) -> None:
    """Raise PluginError if a package provides a `name` that tandem has in this group."""
    if name in found(group):
        found(group)[name].refuse_clash(ours=True)


def source_of(group: str, name: str) -> str:
    """Return the package, with version, that provides a name of a group, or "" if none does."""
    plugin = found(group).get(name)
    return "" if plugin is None else plugin.source


def to_install(source: str) -> str:
    """Return advice on installing a missing package that a file names. `source` is its name and
    version, "" if the file does not name it. The file may come from a stranger, so the user must
    trust the package first."""
    name, _, version = source.partition(" ")
    if not name:
        return "install the package that it was trained with"
    return f"install that package, if you trust it: pip install {name}=={version}"


def packages() -> dict[str, str]:
    """Return the version of each package that provides a plug-in, by package name."""
    plugins = [plugin for group in KINDS for plugin in found(group).values()]
    return {plugin.package: plugin.version for plugin in plugins}


def attempt(use: Callable[[], Any]) -> PluginError | None:
    """Call `use`. Return the PluginError that it raises, or None."""
    try:
        use()
    except PluginError as error:
        return error
    return None
