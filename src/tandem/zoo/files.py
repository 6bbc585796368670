"""Files of tuned settings: tandem's own, and those of installed packages."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tandem import plugins
from tandem.errors import PluginError
from tandem.plugins import Plugin
from tandem.zoo import user

FAMILIES = "families"  # name of the file of families
OWN = Path(__file__).parent


@dataclass(frozen=True)
class ZooTable:
    """One table of a file, or the patterns of a family. plugin: the package that provides it, None
    for tandem."""

    content: Any
    plugin: Plugin | None


@dataclass(frozen=True)
class Tables:
    """The tables of all files of one name. clashes: tables in more than one of them. faults: files
    that are unreadable or invalid."""

    tables: dict[str, ZooTable]
    clashes: dict[str, PluginError]
    faults: tuple[PluginError, ...]


@cache
def read(file: str) -> Tables:
    """Return all tables of `file`, an algorithm or FAMILIES, by name: tandem's first, then each
    package's in alphabetical order, then the user's. Each file is independent: an error in a
    package's file does not affect the others."""
    path = (OWN / file).with_suffix(".toml")
    ours = tomllib.loads(path.read_text("utf-8")) if path.is_file() else {}
    tables = {name: ZooTable(content, None) for name, content in ours.items()}
    clashes: dict[str, PluginError] = {}
    faults: list[PluginError] = []
    for plugin in plugins.found("zoo").values():
        try:
            mine = _of_plugin(plugin, file, tables)
        except PluginError as error:
            faults.append(error)
            continue
        for name, table in mine.items():
            if name in tables:
                clashes[name] = _clash(file, name, tables[name].plugin, plugin)
            else:
                tables[name] = table
    if file != FAMILIES:
        own = user.merged(file, {name: table.content for name, table in tables.items()})
        tables |= {name: ZooTable(content, None) for name, content in own.items()}
    return Tables(tables, clashes, tuple(faults))


def names(plugin: Plugin) -> list[str]:
    """Return the names of a package's files: algorithms, and FAMILIES. Raises PluginError if there
    is no folder."""
    return sorted(path.stem for path in folder(plugin).iterdir() if path.suffix == ".toml")


def folder(plugin: Plugin) -> Path:
    """Return the folder that an entry point names, MODULE or MODULE.FOLDER, without importing it.
    Raises PluginError if there is none."""
    plugin.refuse_clash(ours=False)
    top, *rest = plugin.value.split(".")
    try:
        spec = find_spec(top)
    except (ImportError, ValueError) as error:
        raise plugin.broken(error) from error
    for place in spec.submodule_search_locations or () if spec else ():
        if (at := Path(place, *rest)).is_dir():
            return at
    raise plugin.fault(
        f"({plugin.value}) is not a folder.",
        "the dotted path of a package folder that holds ALGORITHM.toml",
        "name such a folder, and install its files (docs/advanced/extending.md)",
    )


def _of_plugin(plugin: Plugin, file: str, known: dict[str, ZooTable]) -> dict[str, ZooTable]:
    path = (folder(plugin) / file).with_suffix(".toml")
    if not path.is_file():
        return {}
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise plugin.fault(
            f"has a file {path.name} that cannot be read: {error}.", "a TOML file", "fix the file"
        ) from error
    if file == FAMILIES:
        for name, ids in data.items():
            if not (isinstance(ids, list) and all(isinstance(i, str) for i in ids)):
                raise plugin.fault(
                    f"has {name} = {ids!r} in {path.name}.",
                    "a list of ids or id patterns",
                    f'write a list, as in {name} = ["maze/*"]',
                )
        return {name: ZooTable(ids, plugin) for name, ids in data.items()}
    likes: dict[str, list[str]] = {}
    for name, table in data.items():
        if not (isinstance(table, dict) and isinstance(table.get("source"), str)):
            raise plugin.fault(
                f"has no source in the table {name!r} of {path.name}.",
                "a source in each table of settings",
                'add source = "…" to it',
            )
        like = table.get("like", [])
        likes[name] = [like] if isinstance(like, str) else like
        for like in likes[name]:
            if like not in {*data, *known}:
                raise plugin.fault(
                    f"has like = {like!r} in the table {name!r} of {path.name}, not a table.",
                    f"a table of this file or of tandem's {path.name}",
                    "name one of those tables",
                )
    try:
        TopologicalSorter(likes).prepare()
    except CycleError as error:
        cycle = ", ".join(reversed(error.args[1][1:]))
        raise plugin.fault(
            f"has tables whose like entries form a cycle: {cycle}.",
            "no cycle",
            "remove like from one of them",
        ) from error
    return {name: ZooTable(table, plugin) for name, table in data.items()}


def _clash(file: str, name: str, first: Plugin | None, second: Plugin) -> PluginError:
    """Return the error for a table, or family, that two packages provide."""
    what = f"the family {name!r}" if file == FAMILIES else f"settings of {file} for {name!r}"
    other = plugins.TANDEM if first is None else first.source
    return PluginError(
        f"{other} and {second.source} both provide {what}.",
        "each table from one package only",
        f'call it ["{name}:mine"] in {second.package} and select it with --entry mine; or pip '
        f"uninstall {second.package}.",
    )
