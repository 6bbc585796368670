"""The config.json of a run folder, and the run configuration stored in a checkpoint."""

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
from tandem.runs.new_folders import new_folder
from tandem.settings import shell_path
from tandem.types import JSONDict

CORE = (  # packages whose versions are recorded if they are installed
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
# text from a file that advice may quote: it ends up in a command, and anyone may have written it
PACKAGE = re.compile(r"[A-Za-z0-9][\w.-]* [\w.+!-]+\Z", re.ASCII)
MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*\Z", re.ASCII)


def of(
    saved: Checkpoint,
    algorithm: Any = None,
    again: str = "",
    error: type[TandemError] = CheckpointError,
) -> Config:
    """Return the Config of a checkpoint. `algorithm`, `again` and `error`: see `own.of_file`.
    Raises CheckpointError if it holds none."""
    try:
        data = saved.data["config"]
        package = package_of(data, "algorithm")
        kind, name = own.of_file(data["algorithm"], algorithm, saved.path, again, error, package)
        return from_json(data | {"algorithm": name}, kind)
    except TandemError:
        raise
    except Exception as error:  # data not written by tandem can raise anything
        raise damaged(saved.path, error) from error


def read(folder: Path) -> dict[str, Any]:
    """Return the contents of config.json; {} if unreadable, since the checkpoint holds the same
    data."""
    return read_json(folder / "config.json")


def save(config: Config, folder: Path, is_new: bool = False) -> None:
    """Write config.json. Raises RunFolderError on failure, or if `is_new` and another run has
    started in the folder since it was chosen."""
    file = folder / "config.json"
    with writing(file):
        if is_new:
            try:
                file.touch(exist_ok=False)
            except FileExistsError:
                new_folder(folder)
                (folder / "progress.csv").unlink(missing_ok=True)  # it has no rows
        data = config.to_json()
        write_json(file, data | {"signature": trust.signature(data, folder)}, ELSEWHERE)


def save_result(folder: Path, result: JSONDict) -> None:
    """Write result.json, after the last checkpoint."""
    again = f"tandem train --resume {shell_path(folder)} (resume={str(folder)!r})"
    fix = f"free some space; the run is trained and saved, and {again} only scores it again."
    write_json(folder / "result.json", result, fix)


def made_with(algorithm: str, env: Any, options: Options) -> dict[str, Any]:
    """Return the Config fields on provenance: package versions, commit, and the sources of
    everything that is not part of tandem."""
    origin = {"algorithm": plugins.source_of("algorithms", algorithm)}
    for named in options.writer:
        name = named.partition("=")[0]
        origin[f"writer {name}"] = plugins.source_of("writers", name)
    if isinstance(env, str):
        origin |= ids.origin(env)
    known = {what: source for what, source in origin.items() if source}
    return {"versions": versions(), "commit": commit(), "origin": known}


def package_of(data: JSONDict, what: str) -> str:
    """Return the package and version that provided "algorithm", "env" or "writer NAME", according
    to a run's config. Older configs do not record it: the result is then the one recorded package
    that is not installed here, or "" if there is none or more than one."""
    origin, told = _part(data, "origin"), ""
    if origin:
        told = str(origin.get(what, ""))
    else:
        had = _part(data, "versions")
        gone = [f"{n} {v}" for n, v in had.items() if n not in (*CORE, *plugins.packages())]
        told = gone[0] if len(gone) == 1 else ""
    return told if PACKAGE.match(told) else ""


def module_of(data: JSONDict) -> str:
    """Return the module to import for the id of a run's environment, or "" if there is none or its
    name is not safe in a command. `data`: the contents of config.json."""
    module = str(_part(data, "origin").get("env_module", ""))
    return module if MODULE.match(module) else ""


def _part(data: JSONDict, name: str) -> dict[str, Any]:
    part = data.get(name)
    return part if isinstance(part, dict) else {}


def expect_env(data: JSONDict, place: Any, error: type[TandemError] = CheckpointError) -> None:
    """Raise `error` if the environment id of a run is not registered here; the message names the
    package that provides it or the module to import. `data`: the contents of config.json."""
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
    """Raise ResumeError if no installed package provides one of a run's writers."""
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
    """Return the versions of Python, tandem, its possible backends and the installed plug-in
    packages."""
    versions = {"python": platform.python_version(), "platform": platform.platform()}
    for name in CORE[2:]:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions | plugins.packages()


def commit() -> str:
    """Return the git commit of the working directory, or "" if it is not a git checkout."""
    try:
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def refuse_other_env(folder: Path, written: JSONDict, saved: JSONDict) -> None:
    """Raise CheckpointError if a checkpoint's config (`saved`) names another environment than the
    config.json next to it (`written`). Users inspect config.json, and creating an environment can
    run code."""
    if "env" not in written:  # damaged or missing: reported elsewhere
        return
    for name in ("env", "vector", "env_kwargs"):
        if written.get(name) != saved.get(name):
            raise CheckpointError(
                f"the checkpoint of {folder} has {name}={saved.get(name)!r}, but its config.json "
                f"has {written.get(name)!r}.",
                "the same environment in both",
                "if you changed config.json, change it back; otherwise trust neither file.",
            )
