"""Settings that are known to work, for each algorithm and environment, with their source: one TOML
file for one algorithm, one table for one environment. `like` names the environment of the same file
whose settings hold where a table says nothing else. May import the ground and `algorithms`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tandem.algorithms import NAMES


@dataclass(frozen=True)
class Entry:
    """Tuned settings, where they come from, and what differs from there."""

    settings: dict[str, Any]
    source: str


def entry(algorithm: str, env: str) -> Entry | None:
    """The entry for this pair, if there is one."""
    return entries(algorithm).get(env)


@cache
def entries(algorithm: str) -> dict[str, Entry]:
    """All entries of an algorithm by environment, none for a name that is no algorithm."""
    if algorithm not in NAMES:
        return {}
    file = Path(__file__).with_name(algorithm).with_suffix(".toml")
    tables = tomllib.loads(file.read_text("utf-8"))

    def settings(env: str) -> dict[str, Any]:
        own = {name: _value(x) for name, x in tables[env].items() if name not in ("source", "like")}
        return settings(tables[env]["like"]) | own if "like" in tables[env] else own

    return {env: Entry(settings(env), tables[env]["source"]) for env in tables}


def _value(value: object) -> Any:
    """Settings are tuples where TOML has lists."""
    return tuple(value) if isinstance(value, list) else value
