"""A user's own tuned settings: a TOML file with a table for each algorithm and environment, such as
[ppo."CartPole-v1"]. They take precedence over those of tandem and installed packages."""

from __future__ import annotations

import hashlib
import os
import tomllib
from pathlib import Path
from typing import Any

from tandem import algorithms
from tandem.errors import SettingError, UnknownNameError
from tandem.platforms import user_path

DISABLES = "TANDEM_NO_USER_ZOO"  # ignore the file in the configuration folder
_chosen: list[Path] = []


def choose(path: Path | None) -> bool:
    """Use this file instead of the one in the configuration folder. Return True if that is a
    change."""
    before, _chosen[:] = [*_chosen], [] if path is None else [path.resolve()]
    return before != _chosen


def home() -> Path | None:
    """Return the path of the file in the configuration folder, which need not exist; None for a
    user without a home."""
    return None if (folder := user_path("config")) is None else folder / "zoo.toml"


def merged(algorithm: str, known: dict[str, Any]) -> dict[str, Any]:
    """Return the user's tables for an algorithm. known: the tables of the other files, by
    environment; a table that names itself in `like` modifies the existing one. Raises
    UnknownNameError and SettingError for invalid content."""
    path = _chosen[0] if _chosen else None if os.environ.get(DISABLES) else home()
    if path is None or (not _chosen and not path.is_file()):
        return {}
    try:
        content = path.read_bytes()
        data = tomllib.loads(content.decode())
    except (OSError, ValueError) as error:
        raise SettingError(
            f"{path} cannot be read: {error}.",
            "a TOML file",
            "correct the file, or leave --zoo out."
            if _chosen
            else f"correct it, or set {DISABLES}=1.",
        ) from error
    if odd := [name for name in data if name not in algorithms.names()]:
        raise UnknownNameError(f"algorithm for the table in {path}:", odd[0], algorithms.names())
    mine, found = data.get(algorithm, {}), {}
    for env, table in mine.items():
        likes = table.get("like", []) if isinstance(table, dict) else [""]
        likes = [likes] if isinstance(likes, str) else likes
        if wrong := [like for like in likes if like not in {**known, **mine}]:
            raise SettingError(
                f"{path} has {env} = {table!r} for {algorithm}; like={wrong[0]!r} is no table.",
                "a table of settings, and in like the name of another one",
                f'write it as in [{algorithm}."CartPole-v1"], with learning_rate = 1e-3 below.',
            )
        base = known[env] if env in likes and env in known else {}
        source = ", ".join(filter(None, [table.get("source", ""), str(path)]))
        digest = hashlib.sha256(content).hexdigest()[:16]
        found[env] = {**base, **table, "source": f"{source} (SHA-256 {digest})"}
        if env in likes:
            found[env]["like"] = base.get("like", [])
    return found
