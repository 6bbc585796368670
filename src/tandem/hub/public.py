"""What of a run may be seen by others: its files without paths of a machine, addresses and names
of other services."""

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

OF_ONE_MACHINE = ("cluster", "wandb", "mlflow")  # options that would lead another's run elsewhere
NEEDED = ("format", "config", "observation", "observation_space", "action", "plans")  # for acting
# absolute paths of at least two parts, or of a drive, and of a home
PATH = re.compile(r"(?<![\w:/.~])~?(?:/[^\s/'\",;:()]+){2,}/?|(?<!\w)[A-Za-z]:[\\/][^\s'\",;()]+")


class Cleaner:
    """Copies JSON data without what only its machine should know. `changed` has the names of what
    was made shorter."""

    def __init__(self) -> None:
        self.changed: set[str] = set()

    def config(self, config: JSONDict) -> JSONDict:
        """config.json, or what a checkpoint has of it."""
        copy: JSONDict = self.any(config)
        options, versions = dict(copy.get("options", {})), dict(copy.get("versions", {}))
        copy.pop("signature", None)
        for name in OF_ONE_MACHINE:
            if options.get(name):
                options[name] = ""
                self.changed.add(f"options.{name}")
        return copy | {"options": options, "versions": _versions(versions)}

    def any(self, value: Any, name: str = "") -> Any:
        """Data with the last part of each absolute path instead of the path."""
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
    """Of the system its name alone: the rest tells of the machine."""
    if "platform" in versions:
        versions["platform"] = str(versions["platform"]).partition("-")[0]
    return versions


def copy_checkpoint(source: Path, target: Path, whole: bool, clean: Cleaner) -> None:
    """A checkpoint for others: whole, as a resumption needs it, or what acting needs alone.
    CheckpointError where it cannot be read or written."""
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
