"""config.json of a run's folder, and what a checkpoint says of its run."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tandem import plugins
from tandem.algorithms import own
from tandem.envs import ids
from tandem.errors import CheckpointError, ResumeError, TandemError
from tandem.learning.config import Config, Options, from_json
from tandem.runs import trust
from tandem.runs.atomic_files import ELSEWHERE, read_json, write_json, writing
from tandem.runs.checkpoint import Checkpoint, damaged
from tandem.runs.folder import new_folder
from tandem.settings import shell_path
from tandem.types import JSONDict

CORE = (  # whose versions every run has, where they are installed
    "python",
    "platform",
    "tandem-rl",
    "numpy",
    "gymnasium",
    "torch",
    "keras",
    "tensorflow",
    "tensorflow-cpu",
    "jax",
)
# What a file may have put into advice: it stands in a command, and a stranger may have written it.
PACKAGE = re.compile(r"[A-Za-z0-9][\w.-]* [\w.+!-]+\Z", re.ASCII)
MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*\Z", re.ASCII)


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
        package = package_of(data, "algorithm")
        kind, name = own.of_file(data["algorithm"], algorithm, saved.path, again, error, package)
        return from_json(data | {"algorithm": name}, kind)
    except TandemError:
        raise
    except Exception as error:  # whatever data that tandem did not write comes to
        raise damaged(saved.path, error) from error


def read(folder: Path) -> dict[str, Any]:
    """What config.json says, or nothing where it cannot be read: the checkpoint says the same."""
    return read_json(folder / "config.json")


def save(config: Config, folder: Path, is_new: bool = False) -> None:
    """Writes config.json. RunFolderError where that cannot be, or where a run that `is_new` finds
    that another has begun in the folder since it was chosen."""
    file = folder / "config.json"
    with writing(file):
        if is_new:
            try:
                file.touch(exist_ok=False)
            except FileExistsError:
                new_folder(folder)
                (folder / "progress.csv").unlink(missing_ok=True)  # it has no row
        data = config.to_json()
        write_json(file, data | {"signature": trust.signature(data, folder)}, ELSEWHERE)


def save_result(folder: Path, result: JSONDict) -> None:
    """Writes result.json, when the last checkpoint is there."""
    again = f"tandem train --resume {shell_path(folder)} (resume={str(folder)!r})"
    fix = f"free some space; the run is trained and saved, and {again} only scores it again."
    write_json(folder / "result.json", result, fix)


def made_with(algorithm: str, env: Any, options: Options) -> dict[str, Any]:
    """The fields of a Config that say what a run was made with: versions, commit, and where what
    is not tandem's came from."""
    origin = {"algorithm": plugins.source_of("algorithms", algorithm)}
    for named in options.writer:
        name = named.partition("=")[0]
        origin[f"writer {name}"] = plugins.source_of("writers", name)
    if isinstance(env, str):
        origin |= ids.origin(env)
    known = {what: source for what, source in origin.items() if source}
    return {"versions": versions(), "commit": commit(), "origin": known}


def package_of(data: JSONDict, what: str) -> str:
    """The package, and its version, that "algorithm", "env" or "writer NAME" of a run came from, as
    its config says. Of an older file, those that it had beside tandem and that are not here;
    "" where there is none, or more than one."""
    origin, told = _part(data, "origin"), ""
    if origin:
        told = str(origin.get(what, ""))
    else:
        had = _part(data, "versions")
        gone = [f"{n} {v}" for n, v in had.items() if n not in (*CORE, *plugins.packages())]
        told = gone[0] if len(gone) == 1 else ""
    return told if PACKAGE.match(told) else ""


def module_of(data: JSONDict) -> str:
    """The module to import for the id of a run's environment; "" where there is none, or none that
    may stand in a command. data: of its config.json."""
    module = str(_part(data, "origin").get("env_module", ""))
    return module if MODULE.match(module) else ""


def _part(data: JSONDict, name: str) -> dict[str, Any]:
    part = data.get(name)
    return part if isinstance(part, dict) else {}


def expect_env(data: JSONDict, place: Any, error: type[TandemError] = CheckpointError) -> None:
    """Raises `error` where nobody here has registered the id of a run's environment: with the
    package that brings it, or the module to import. data: of its config.json."""
    name = data["env"]
    if data.get("own_env") or data.get("vector") or not isinstance(name, str):
        return
    if not ids.is_missing(name):
        return
    if package := package_of(data, "env"):
        raise error(
            f"{place} was trained in {name} of the package {package}, but no installed package "
            "provides that environment.",
            f"{package} to be installed",
            f"{plugins.to_install(package)}; `tandem list` then shows it.",
        )
    module = module_of(data)
    module = "" if module in sys.modules else module
    raise error(
        f"{place} was trained in {name}, an id that is not registered here"
        f"{f': its class was in {module}' if module else ''}.",
        "the module that registers it to be imported first, as in training",
        f"import {module or 'MODULE'} first, if you trust it; in a command, add --import "
        f"{module or 'MODULE'}.",
    )


def expect_writers(data: JSONDict, place: Any) -> None:
    """ResumeError where no package here brings a writer of a run."""
    for named in data["options"].get("writer", ()):
        name = named.partition("=")[0]
        if name not in plugins.found("writers"):
            package = package_of(data, f"writer {name}")
            raise ResumeError(
                f"{place} logs to the writer {name!r}, which no installed package provides.",
                f"{package or 'the package of that writer'} to be installed",
                f"{plugins.to_install(package)}; `tandem list` then shows it. Or resume without "
                "it: writer=() (--writer '').",
            )


def versions() -> dict[str, str]:
    """Of Python, tandem, what it may have run on, and the packages that add something to it."""
    versions = {"python": platform.python_version(), "platform": platform.platform()}
    for name in CORE[2:]:
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
                f"the checkpoint of {folder} has {name}={saved.get(name)!r}, but its config.json "
                f"has {written.get(name)!r}.",
                "the same environment in both",
                "if you changed config.json, change it back; otherwise trust neither file.",
            )
