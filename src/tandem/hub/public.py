"""Removal of local paths, addresses and names of other services from a run's files before
sharing."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from shutil import copyfileobj
from typing import Any

from tandem.errors import CheckpointError
from tandem.runs import checkpoint
from tandem.runs.checkpoint_dir import INDEX
from tandem.types import JSONDict

OF_ONE_MACHINE = ("cluster", "wandb", "mlflow")  # options that point to the author's services
NEEDED = ("format", "config", "observation", "observation_space", "action", "plans")  # for acting
# absolute paths with at least two parts, on a drive, or in a home directory
PATH = re.compile(r"(?<![\w:/.~])~?(?:/[^\s/'\",;:()]+){2,}/?|(?<!\w)[A-Za-z]:[\\/][^\s'\",;()]+")


class Cleaner:
    """Copier of JSON data that removes private information. `changed` holds the names of the
    shortened entries."""

    def __init__(self) -> None:
        self.changed: set[str] = set()

    def config(self, config: JSONDict) -> JSONDict:
        """Clean config.json, or a checkpoint's copy of it."""
        copy: JSONDict = self.any(config)
        options, versions = dict(copy.get("options", {})), dict(copy.get("versions", {}))
        copy.pop("signature", None)
        for name in OF_ONE_MACHINE:
            if options.get(name):
                options[name] = ""
                self.changed.add(f"options.{name}")
        return copy | {"options": options, "versions": _versions(versions)}

    def any(self, value: Any, name: str = "") -> Any:
        """Replace each absolute path in the data by its last part."""
        if isinstance(value, Mapping):
            at = f"{name}." if name else ""
            return {self._text(k, name): self.any(v, f"{at}{k}") for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [self.any(each, name) for each in value]
        return self._text(value, name) if isinstance(value, str) else value

    def _text(self, text: str, name: str) -> str:
        shorter = PATH.sub(lambda m: re.split(r"[\\/]", m[0].rstrip("\\/"))[-1], text)
        if shorter != text:
            self.changed.add(name)
        return shorter


def _versions(versions: JSONDict) -> JSONDict:
    """Reduce the platform to the name of the operating system; the rest identifies the machine."""
    if "platform" in versions:
        versions["platform"] = str(versions["platform"]).partition("-")[0]
    return versions


def copy_checkpoint(source: Path, target: Path, whole: bool, clean: Cleaner) -> None:
    """Copy a checkpoint for sharing: whole, for resuming, or only the parts that acting needs.
    Raises CheckpointError if it cannot be read or written."""
    data = checkpoint.read(source).data
    config = clean.config(data["config"])
    if whole:
        data = clean.any({k: v for k, v in data.items() if k != "config"}) | {"config": config}
    else:
        longest = data.get("session", {}).get("table", {}).get("longest", 0)
        data = {name: clean.any(data[name]) for name in NEEDED if name in data}
        data |= {"config": config, "whole": False, "session": {"table": {"longest": longest}}}
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
            new.writestr(INDEX, json.dumps(data))
            for name in old.namelist():
                if name.endswith(".safetensors") and (whole or name == "networks.safetensors"):
                    with old.open(name) as a, new.open(name, "w", force_zip64=True) as b:
                        copyfileobj(a, b)
    except (OSError, zipfile.BadZipFile) as error:
        raise CheckpointError(
            f"cannot copy {source}: {error}.",
            "an intact checkpoint, and space for a copy in the temporary folder",
            "free some space, or push with another checkpoint of the run in its place.",
        ) from error
