"""The command that several runs were begun with, as it is kept in the folder of all of them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from tandem import algorithms
from tandem.cli import settings_file
from tandem.cli.parser import with_import
from tandem.errors import ResumeError, RunFolderError
from tandem.runs import trust
from tandem.runs.atomic_files import ELSEWHERE, write_json, writing
from tandem.runs.folder import LOCK
from tandem.settings import shell_path
from tandem.types import JSONDict

FILE = "seeds.json"  # the command, and the seeds
SETTINGS = "seeds-settings"  # beside it: a copy of the file of --config, which may be there too
SITTING = {"--stop-at": 1, "--import": 1}  # of one sitting, and the user's alone
# what the command of one seed has of its own; its --config says what --from-sweep did
OWN = {"--seed": 1, "--seeds": 1, "--out": 1, "--from-sweep": 1}


@dataclass(frozen=True)
class SeedsCommand:
    """The words of the command without those in `OWN`, and the seeds. `parent`: the folder of all
    runs."""

    words: list[str]
    seeds: list[int]
    parent: Path
    signature: object = field(default="", compare=False)  # as the file has it, see `runs.trust`

    @property
    def again(self) -> str:
        """The command that resumes them, with the names that a file may not import."""
        algorithm = f"{name} " if (name := own_class(self.words)) else ""
        more = with_import(value_of("--import", self.words))
        return f"tandem train {algorithm}--resume {shell_path(self.parent)}{more}"

    def of_seed(self, seed: int, more: Iterable[str] = ()) -> list[str]:
        """The words that begin the run of one seed."""
        return [*self.words, *more, "--seed", str(seed), f"--out={self.parent / f's{seed}'}"]

    def save(self) -> None:
        """Writes it, and a copy of the file of settings, which may be another one later."""
        with writing(self.parent / FILE):
            if file := value_of("--config", self.words):
                shutil.copyfile(file, self._settings(file))
            data = {"command": self.words, "seeds": self.seeds}
            signature = trust.signature(self._signed(own_class(self.words)), self.parent)
            write_json(self.parent / FILE, data | {"signature": signature}, ELSEWHERE)

    def _signed(self, theirs: str | None) -> JSONDict:
        """The names of the command, the command, and the text of the copied file of settings.
        theirs: the one class that may be imported."""
        from tandem.cli.train import make_parser, settings_flags

        words, parser = without(self.words, {"--import": 1}), make_parser()  # which imports it
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
        """This command; if this user did not write it on this machine, without what only a user may
        give. ResumeError where it names what may run code, and `names` does not repeat it, or a
        program's own algorithm, which these `words` do not: no file is trusted with an import."""
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
        # again and again: a flag may stand where the value of another one does
        while (rest := [w for w in without(words, SITTING) if w != "--trust"]) != words:
            words = rest
        command = replace(self, words=words)
        data = command._signed(theirs)
        again = f"tandem train {data['algorithm']} {{}}--resume {shell_path(self.parent)}"
        trust.expect(data, self.parent, "", names, again, ResumeError)
        return command

    def remove(self) -> None:
        """What `save` wrote, and the folder where nothing else is in it."""
        if file := value_of("--config", self.words):
            self._settings(file).unlink(missing_ok=True)
        for name in (FILE, LOCK):
            (self.parent / name).unlink(missing_ok=True)
        with suppress(OSError):
            self.parent.rmdir()

    def resumed(self) -> SeedsCommand:
        """The command of seeds that have not begun, when others go on: by the settings of then, and
        without --stop-at, which was of one sitting."""
        own = without(self.words, SITTING)
        file = value_of("--config", own)
        if file is not None and self._settings(file).is_file():  # older folders have none
            own = [*without(own, {"--config": 1}), f"--config={self._settings(file)}"]
        return SeedsCommand(own, self.seeds, self.parent)

    def _settings(self, file: str) -> Path:
        return self.parent / f"{SETTINGS}{Path(file).suffix}"


def own_class(words: list[str]) -> str | None:
    """The algorithm of a command where it is module:Class; None where it is not."""
    from tandem.cli.train import make_parser

    return next(filter(algorithms.is_class, make_parser().algorithms(words)), None)


def is_in(folder: str | Path) -> bool:
    """Whether it is the folder of several seeds."""
    return (Path(folder) / FILE).is_file()


def read(parent: Path) -> SeedsCommand:
    """That of the runs in a folder. RunFolderError where its file is damaged."""
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


def without(words: Iterable[str], flags: dict[str, int]) -> list[str]:
    """The words of a command without these flags, each of which has a value."""
    rest, drop = [], False
    for word in words:
        if drop:
            drop = False
        elif word in flags:
            drop = True
        elif word.partition("=")[0] not in flags:
            rest.append(word)
    return rest


def value_of(flag: str, words: Sequence[str]) -> str | None:
    """The value of a flag in a command; None where it does not stand there."""
    for word, after in zip(words, [*words, ""][1:], strict=True):
        if word == flag:
            return after
        if word.startswith(f"{flag}="):
            return word.removeprefix(f"{flag}=")
    return None
