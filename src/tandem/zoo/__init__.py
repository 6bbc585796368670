"""Settings for each algorithm and environment, with their source: one TOML file for one algorithm,
one table for one environment, or for a family of them (families.toml), which an environment's own
table wins over. "Env-v1:name" are other settings for it, which `--entry name` asks for,
"Family:name" those for its family, and ":name" those for an environment that has none of this name.
`like` names the table of the same file whose settings hold where a table says nothing else, or
several, of which the later ones win. `settle` puts them between an algorithm's defaults and what a
run is given."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from tandem import algorithms
from tandem.algorithms import NAMES
from tandem.algorithms.own import name_of
from tandem.errors import UnknownNameError
from tandem.learning.config import Options
from tandem.settings import apply, check_ranges


@dataclass(frozen=True)
class Entry:
    """Tuned settings, where they come from, and what differs from there."""

    settings: dict[str, Any]
    source: str


def entry(algorithm: str, env: str, name: str = "") -> Entry | None:
    """The entry for this pair, if there is one; that of a `name`, which UnknownNameError says where
    it is none."""
    tables, suffix = entries(algorithm), f":{name}" if name else ""
    found = next((tables[of + suffix] for of in _reached(env) if of + suffix in tables), None)
    if name and found is None:
        kind, known = f"entry of {algorithm} for {env or 'any environment'}", named(algorithm, env)
        if not known:
            raise UnknownNameError(kind, name, (), "leave entry out.", "no name: there are none")
        raise UnknownNameError(kind, name, known)
    return found


def environments(algorithm: str) -> list[str]:
    """The environments that an algorithm has entries for, and the families of them."""
    return [table for table in entries(algorithm) if ":" not in table]


def named(algorithm: str, env: str | None = None) -> list[str]:
    """The names of the other entries of this pair, or of the algorithm in any environment."""
    split = [table.rpartition(":") for table in entries(algorithm)]
    mine = (name for of, colon, name in split if colon and (env is None or of in _reached(env)))
    return list(dict.fromkeys(mine))


@cache
def families() -> dict[str, tuple[str, ...]]:
    """The environments of each family, as ids or patterns of them."""
    file = Path(__file__).with_name("families.toml")
    return {name: tuple(ids) for name, ids in tomllib.loads(file.read_text("utf-8")).items()}


def _reached(env: str) -> list[str]:
    """What the tables that hold for an environment are called, the nearest first."""
    of = [name for name, ids in families().items() if any(fnmatchcase(env, i) for i in ids)]
    # a class or function may be called like a family, and is none of it
    return [*(() if env in families() else (env,)), *of, ""]


@cache
def entries(algorithm: str) -> dict[str, Entry]:
    """All entries of an algorithm by environment, none for a name that is no algorithm."""
    if algorithm not in NAMES:
        return {}
    file = Path(__file__).with_name(algorithm).with_suffix(".toml")
    tables = tomllib.loads(file.read_text("utf-8"))

    def settings(env: str) -> dict[str, Any]:
        own = {name: _value(x) for name, x in tables[env].items() if name not in ("source", "like")}
        like = tables[env].get("like", ())
        for table in reversed((like,) if isinstance(like, str) else like):
            own = settings(table) | own
        return own

    return {env: Entry(settings(env), tables[env]["source"]) for env in tables}


def _value(value: object) -> Any:
    """Settings are tuples where TOML has lists."""
    return tuple(value) if isinstance(value, list) else value


def settle(algorithm: str | type, env: str, values: dict[str, Any]) -> tuple[Any, Options, str]:
    """Settings and options for a run, and where they come from: the defaults, an entry for the
    algorithm and environment over them, and what is given over both."""
    kind, algorithm = algorithms.get(algorithm), name_of(algorithm)
    own, others = {f.name for f in fields(kind.Settings)}, {f.name for f in fields(Options)}
    for name in values:
        if name not in own | others:
            raise UnknownNameError(f"setting of {algorithm}", name, own | others)
    options = apply(Options(), {n: v for n, v in values.items() if n in others})
    tuned = entry(algorithm, env, options.entry)
    base = apply(kind.Settings(), tuned.settings if tuned else {})
    chosen = apply(base, {n: v for n, v in values.items() if n in own}).settled(values)
    for part in (chosen, options):
        check_ranges(part)
    return chosen, options, tuned.source if tuned else f"defaults of {algorithm}"
