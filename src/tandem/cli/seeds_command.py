"""The command that started runs of several seeds, as stored in their common folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from tandem import algorithms
from tandem.cli import settings_file
from tandem.cli.parser import with_import
from tandem.cli.train_arguments import make_parser, settings_flags
from tandem.cli.words import value_of, without
from tandem.errors import ResumeError, RunFolderError
from tandem.runs import trust
from tandem.runs.atomic_files import ELSEWHERE, write_json, writing
from tandem.runs.new_folders import LOCK
from tandem.settings import shell_path
from tandem.types import JSONDict

FILE = "seeds.json"  # holds the command and the seeds
SETTINGS = "seeds-settings"  # stem of the copy of the --config file
SITTING = {"--stop-at": 1, "--import": 1}  # for one session and one user only
# flags that differ by seed; --config replaces --from-sweep
OWN = {"--seed": 1, "--seeds": 1, "--out": 1, "--from-sweep": 1}


@dataclass(frozen=True)
class SeedsCommand:
    """The words of the command without those in `OWN`, and the seeds. `parent`: the folder of all
    runs."""

    words: list[str]
    seeds: list[int]
    parent: Path
    signature: object = field(default="", compare=False)  # as in the file; see `runs.trust`

    @property
    def again(self) -> str:
        """The command that resumes the runs, with the names that a file may not import."""
        algorithm = f"{name} " if (name := own_class(self.words)) else ""
        more = with_import(value_of("--import", self.words))
        return f"tandem train {algorithm}--resume {shell_path(self.parent)}{more}"

    def of_seed(self, seed: int, more: Iterable[str] = ()) -> list[str]:
        """Return the words that start the run of one seed."""
        return [*self.words, *more, "--seed", str(seed), f"--out={self.parent / f's{seed}'}"]

    def save(self) -> None:
        """Write the command, and a copy of the settings file, which may change later."""
        with writing(self.parent / FILE):
            if file := value_of("--config", self.words):
                shutil.copyfile(file, self._settings(file))
            data = {"command": self.words, "seeds": self.seeds}
            signature = trust.signature(self._signed(own_class(self.words)), self.parent)
            write_json(self.parent / FILE, data | {"signature": signature}, ELSEWHERE)

    def _signed(self, theirs: str | None) -> JSONDict:
        """Return the names of the command, the command, and the text of the copied settings file.
        theirs: the only class that may be imported."""
        # parsing --import would import the module
        words, parser = without(self.words, {"--import": 1}), make_parser()
        file = self._settings(value_of("--config", words) or "")
        said = settings_file.read(file).get("algorithm", "") if file.is_file() else ""
        settings_flags(parser, words, otherwise=str(said), trusted=(theirs,))
        args = parser.read(words)
        return {
            "algorithm": args.algorithm,
            "env": args.env,
            "vector": args.vector,
            "env_kwargs": args.env_kwargs,
            "network": args.network,
            "wrappers": args.wrappers,
            "options": {"cluster": getattr(args, "cluster", "")},
            "command": self.words,
            "file": file.read_text(encoding="utf-8") if file.is_file() else None,
        }

    def vouched(self, names: trust.Names, words: list[str]) -> SeedsCommand:
        """Return this command; if this user did not write it on this machine, without the flags
        that only a user may give. Raises ResumeError if it names something that may run code and
        `names` does not repeat it, or a custom algorithm that these `words` do not repeat: no file
        may import code."""
        theirs = own_class(self.words)
        if theirs is not None and own_class(words) != theirs:
            raise ResumeError(
                f"the runs in {self.parent} were trained by {theirs}, whose code is not saved.",
                "the name of that class in the command",
                self.again,
            )
        if trust.is_signed(self._signed(theirs), self.parent, self.signature):
            return self
        words = self.words
        # repeat until stable: a flag may be in the place of another one's value
        while (rest := [w for w in without(words, SITTING) if w != "--trust"]) != words:
            words = rest
        command = replace(self, words=words)
        data = command._signed(theirs)
        again = f"tandem train {data['algorithm']} {{}}--resume {shell_path(self.parent)}"
        trust.expect(data, self.parent, "", names, again, ResumeError)
        return command

    def remove(self) -> None:
        """Remove the files of `save`, and the folder if it is then empty."""
        if file := value_of("--config", self.words):
            self._settings(file).unlink(missing_ok=True)
        for name in (FILE, LOCK):
            (self.parent / name).unlink(missing_ok=True)
        with suppress(OSError):
            self.parent.rmdir()

    def resumed(self) -> SeedsCommand:
        """Return the command for seeds that have not started when others resume: with the original
        settings, and without --stop-at, which applied to one session."""
        own = without(self.words, SITTING)
        file = value_of("--config", own)
        if file is not None and self._settings(file).is_file():  # missing in older folders
            own = [*without(own, {"--config": 1}), f"--config={self._settings(file)}"]
        return SeedsCommand(own, self.seeds, self.parent)

    def _settings(self, file: str) -> Path:
        return self.parent / f"{SETTINGS}{Path(file).suffix}"


def own_class(words: list[str]) -> str | None:
    """Return the algorithm of a command if it is module:Class, else None."""
    return next(filter(algorithms.is_class, make_parser().algorithms(words)), None)


def is_in(folder: str | Path) -> bool:
    """Return True for the folder of several seeds."""
    return (Path(folder) / FILE).is_file()


def read(parent: Path) -> SeedsCommand:
    """Return the command of the runs in a folder. Raises RunFolderError if its file is damaged."""
    try:
        said = json.loads((parent / FILE).read_text(encoding="utf-8"))
        words, seeds = list(map(str, said["command"])), list(map(int, said["seeds"]))
        return SeedsCommand(words, seeds, parent, said.get("signature"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunFolderError(
            f"cannot read {parent / FILE}: {error}.",
            "the command and seeds that tandem saved",
            f"resume the runs one by one: --resume {shell_path(parent)}/s0",
        ) from error
