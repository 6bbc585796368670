"""config.json of a run's folder, and what a checkpoint says of its run."""

from __future__ import annotations

import json
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tandem import plugins
from tandem.algorithms import own
from tandem.errors import CheckpointError, RunFolderError, TandemError
from tandem.learning.config import Config, from_json
from tandem.runs import atomic_files
from tandem.runs.checkpoint import Checkpoint, damaged
from tandem.types import JSONDict


def of(
    saved: Checkpoint,
    algorithm: Any = None,
    again: str = "",
    error: type[TandemError] = CheckpointError,
) -> Config:
    """The Config that a checkpoint was written with. algorithm, again, error: see `own.of_file`.
    CheckpointError where it holds none."""
    try:
        data = saved.data["config"]
        kind, name = own.of_file(data["algorithm"], algorithm, saved.path, again, error)
        return from_json(data | {"algorithm": name}, kind)
    except TandemError:
        raise
    except Exception as error:  # whatever data that tandem did not write comes to
        raise damaged(saved.path, error) from error


def read(folder: Path) -> dict[str, Any]:
    """What config.json says, or nothing where it cannot be read: the checkpoint says the same."""
    try:
        data = json.loads((folder / "config.json").read_text())
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def save(config: Config, folder: Path) -> None:
    """Writes config.json. RunFolderError where that cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / "config.json", config.to_json())
    except OSError as error:
        raise RunFolderError(
            f"cannot write {folder}: {error}.",
            "a folder that can be written",
            "choose another with --out.",
        ) from error


def write_json(path: Path, data: JSONDict) -> None:
    """Writes data for people and programs to read, at once or not at all."""
    with atomic_files.replacing(path) as file:
        file.write((json.dumps(data, indent=2) + "\n").encode())


def versions() -> dict[str, str]:
    """Of Python, tandem, what it may have run on, and the packages that add something to it."""
    versions = {"python": platform.python_version(), "platform": platform.platform()}
    for name in (
        "tandem-rl",
        "numpy",
        "gymnasium",
        "torch",
        "keras",
        "tensorflow",
        "tensorflow-cpu",
        "jax",
    ):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions | plugins.packages()


def commit() -> str:
    """The commit of the working directory, where that is a git checkout."""
    try:
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def refuse_other_env(folder: Path, written: JSONDict, saved: JSONDict) -> None:
    """CheckpointError where a checkpoint's config `saved` names another environment than what is
    `written` in the config.json beside it, which people look at: making one may run code."""
    if "env" not in written:  # damaged, or gone, which others tell of
        return
    for name in ("env", "vector", "env_kwargs"):
        if written.get(name) != saved.get(name):
            raise CheckpointError(
                f"the checkpoint of {folder} has {name}={saved.get(name)!r}, its config.json "
                f"{written.get(name)!r}.",
                "the same environment in both, as a run leaves them",
                "trust neither file of a stranger's; where you changed config.json, change it "
                "back.",
            )
