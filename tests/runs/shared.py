"""What several tests of runs use: settings of a small run, its table, processes of their own."""

import csv
import errno
import json
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tandem
from tandem.runs.folder import Run
from tests.helpers import ON_CPU, ONE_THREAD, QUIET, ROOT

QUICK: dict[str, Any] = {"framework": "torch", "hidden": (8,), "plots": False, "tensorboard": False}
QUICK |= {"eval_episodes": 1, "final_episodes": 1}
CHILD = {**os.environ, **ONE_THREAD, **ON_CPU, **QUIET}
CHILD["PYTHONPATH"] = f"{ROOT / 'src'}{os.pathsep}{ROOT}"
CHILD.pop("KERAS_BACKEND", None)
TANDEM = [sys.executable, "-m", "tandem"]


def child(*words: str, cwd: Path | None = None) -> subprocess.Popen[str]:
    """A Python that is given these words, with pipes."""
    pipe: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, *words], cwd=cwd, env=CHILD, text=True, **pipe)


def wait_for(process: subprocess.Popen[Any], table: Path, count: int = 0) -> None:
    """Until a run that another process trains, or those below its folder, have so many rows."""
    limit = time.monotonic() + 100
    while not (found := [*table.parent.rglob(table.name)]) or (
        sum(len(rows(each.parent)) for each in found) < count
    ):
        assert process.poll() is None and time.monotonic() < limit
        time.sleep(0.02)


def rows(folder: Path) -> list[dict[str, str]]:
    with open(folder / "progress.csv", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def finished(session: Any, stop_at: int | None = None) -> Any:
    list(session.events(stop_at))
    return session


def in_parts(folder: Path, algorithm: str, env: Any, stop_at: int, **given: Any) -> None:
    """Trains a run, `folder`/whole, and the same one stopped and resumed: to the same bits."""
    tandem.train(algorithm, env, out=folder / "whole", **given)
    tandem.train(algorithm, env, out=folder / "parts", stop_at=stop_at, **given)
    tandem.train(resume=folder / "parts", env=env if callable(env) else None)
    whole, parts = (Run(folder / n).table["fingerprint"] for n in ("whole", "parts"))
    assert whole == parts and whole[-1]


def no_space(*_: Any, **__: Any) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def rewrite(file: Path, change: Callable[[dict[str, bytes]], None]) -> None:
    with zipfile.ZipFile(file) as inner:
        members = {n: inner.read(n) for n in inner.namelist()}
    change(members)
    with zipfile.ZipFile(file, "w") as inner:
        for name, data in members.items():
            inner.writestr(name, data)


def edit_index(file: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the JSON in a checkpoint, or replace it by what `change` returns."""

    def edit(members: dict[str, bytes]) -> None:
        data = json.loads(members["checkpoint.json"])
        changed = change(data)
        members["checkpoint.json"] = json.dumps(data if changed is None else changed).encode()

    rewrite(file, edit)
