"""Folders of new runs: their names, and whether a run can start in one."""

from __future__ import annotations

import shutil
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from tandem.errors import RunFolderError
from tandem.platforms import file_name
from tandem.runs.atomic_files import PART, read_json, writing
from tandem.settings import shell_path

LOCK = ".lock"  # names the process that uses the folder
_made: list[Path] = []  # created by `free_folder`


def default_folder(algorithm: str, env_name: str, seed: int | str) -> Path:
    """Return runs/ppo-CartPole-v1-s0-20250131-120000, or the next free name like it."""
    name, algorithm = file_name(env_name), algorithm.rpartition(":")[2]
    return free_folder(Path("runs") / f"{algorithm}-{name}-s{seed}")


def free_folder(what: Path) -> Path:
    """Return the path with a time stamp, or the next free name like it. The folder is created, so
    that another command in the same second takes another name. See `drop_unused`."""
    base = what.with_name(f"{what.name}-{datetime.now():%Y%m%d-%H%M%S}")
    made = [] if base.parent.exists() else [base.parent]
    folder, n = base, 2
    while True:
        try:
            folder.mkdir(parents=True)
        except OSError as error:
            # a broken symbolic link blocks a name, too
            if not isinstance(error, FileExistsError) or not folder.parent.is_dir():
                return folder  # the first write there raises the error
            folder, n = base.with_name(f"{base.name}-{n}"), n + 1
        else:
            _made.extend([folder, *made])
            return folder


def copied(source: Path, target: Path) -> Path:
    """Copy a folder to the new folder `target` and return it. Raises RunFolderError on failure."""
    new_folder(target)
    with writing(target):
        shutil.copytree(source, target, dirs_exist_ok=True)
    return target


def drop_unused() -> None:
    """Remove the folders that `free_folder` created for commands that failed before writing
    anything."""
    while _made:
        with suppress(OSError):  # not empty
            _made.pop(0).rmdir()


def new_folder(folder: Path) -> Path:
    """Return the folder if a run can start in it: it is empty, does not exist, or was left by a
    kill before the first checkpoint and table row. Raises RunFolderError otherwise."""
    if folder.exists() and not (folder.is_dir() and _holds_no_results(folder)):
        of_run = (folder / "checkpoints" / "last.zip").is_file()
        raise RunFolderError(
            f"{folder} exists and is not empty.",
            "a new folder",
            f"choose another, or resume it: --resume {shell_path(folder)}"
            if of_run
            else "choose another.",
        )
    return folder


def _holds_no_results(folder: Path) -> bool:
    """Return True if the folder holds only files that a run writes before it has results."""
    config, table, events = (folder / n for n in ("config.json", "progress.csv", "tensorboard"))
    early = {config, table, folder / LOCK}
    return (
        all(
            f in early or f.suffix == PART or f.parent == events or f.is_dir()
            for f in folder.rglob("*")
        )
        and (not config.exists() or not config.stat().st_size or "signature" in read_json(config))
        and (not table.exists() or table.read_bytes().count(b"\n") < 2)
    )
