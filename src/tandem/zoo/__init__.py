"""Settings that are known to work, for each algorithm and environment, with their source. May
import the ground and `algorithms`."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
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


def entries(algorithm: str) -> dict[str, Entry]:
    """All entries of an algorithm by environment."""
    found: dict[str, Entry] = (
        importlib.import_module(f"tandem.zoo.{algorithm}").ENTRIES if algorithm in NAMES else {}
    )
    return found
