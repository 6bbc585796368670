"""Which algorithms a command knows the settings of."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from tandem import algorithms, plugins, trainer
from tandem.algorithms import own
from tandem.algorithms.own import name_of
from tandem.cli import settings_file
from tandem.errors import TandemError


def kinds(*asked: Any) -> dict[str, Any]:
    """The classes of tandem's algorithms by name, and those `asked` for, by name or as a class."""
    others = [a for a in asked if a is not None and a not in algorithms.NAMES]
    return algorithms.built_in() | {name_of(a): own.checked(a, trainer.TAKEN) for a in others}


def plugged(words: Sequence[str]) -> list[str]:
    """Which algorithms of installed packages a command is about; no others are imported."""
    named = list(words)
    for word, value in pairwise((*words, "")):
        if word.partition("=")[0] == "--config":
            with suppress(TandemError):  # told of when the file is read for good
                file = Path(word.partition("=")[2] or value)
                named.append(str(settings_file.read(file).get("algorithm")))
    known = [n for n in algorithms.names() if n not in algorithms.NAMES and n in named]
    # a broken one that is the algorithm is an error at once; else its name is some flag's value
    return [n for n in known if n == named[0] or not plugins.attempt(partial(own.checked, n))]
