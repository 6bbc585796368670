"""Where agents leave what they would go on from: in memory, and in a folder if there is one."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np

from tandem.errors import CheckpointError
from tandem.runs import checkpoint
from tandem.types import Array


class Kept(dict[str, Any]):
    """What is kept of one agent: "version", "data", "arrays"."""


class Keeper:
    """The latest state of each agent by its key (NAME/NUMBER), and who sits where.

    folder: where states are written, too, as KEY.zip (JSON and safetensors); agents go on from
      what is there already."""

    def __init__(self, folder: str | None = None) -> None:
        self.folder = None if folder is None else Path(folder)
        self._kept: dict[str, Kept] = {}
        self._seats: dict[str, dict[str, int]] = {}

    def place(self) -> str | None:
        """The folder."""
        return None if self.folder is None else str(self.folder)

    def keep(self, key: str, version: int, data: dict[str, Any], arrays: dict[str, Array]) -> None:
        """Takes a state in place of the one before, unless it is older: two incarnations of an
        agent may overlap."""
        if key in self._kept and self._kept[key]["version"] > version:
            return
        # Copies: what came by Ray lies in memory that may go with the process that sent it.
        self._kept[key] = Kept(
            version=version, data=data, arrays={n: np.array(x) for n, x in arrays.items()}
        )
        if self.folder is not None:
            checkpoint.write(
                self._file(key),
                {"version": version, "agent": key, "state": data},
                {"state": arrays},
            )

    def recall(self, key: str) -> Kept | None:
        """The state of an agent; None where nothing was kept. CheckpointError for a file that
        cannot be read."""
        if key not in self._kept and self.folder is not None and self._file(key).is_file():
            saved = checkpoint.read(self._file(key))
            try:
                version, data = int(saved.data["version"]), dict(saved.data["state"])
            except (KeyError, TypeError, ValueError) as error:
                raise checkpoint.damaged(saved.path, error) from error
            self._kept[key] = Kept(version=version, data=data, arrays=saved.group("state"))
        return self._kept.get(key)

    def has(self, key: str) -> bool:
        """Whether it would find it: false for one that was restarted itself, without a folder, and
        lost it."""
        return key in self._kept

    def seat(self, hall: str, who: str, at_least: int = 0, width: int = 1) -> int:
        """The number of a caller in a hall: the same each time, the next free one (from `at_least`
        on) the first time; it takes `width` of them."""
        seats = self._seats.setdefault(hall, {})
        if who not in seats:
            taken = seats.pop("", 0)
            seats[who] = max(taken, at_least)
            seats[""] = seats[who] + width
        return seats[who]

    def unseat(self, hall: str, who: str) -> None:
        """One who came last leaves, as if it had never come."""
        seats = self._seats.get(hall, {})
        if who in seats and seats[who] == max(n for name, n in seats.items() if name):
            seats[""] = seats.pop(who)

    def pid(self) -> int:
        return os.getpid()

    def _file(self, key: str) -> Path:
        assert self.folder is not None
        name = re.sub(r"[^\w.-]", lambda m: f"%{ord(m[0]):x}", key)
        if len(name) > 200:
            raise CheckpointError(
                f"the agent's name {key!r} is too long for a file.",
                "at most 200 characters",
                "shorten it.",
            )
        return self.folder / f"{name}.zip"
