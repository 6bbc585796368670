"""Errors for settings that an algorithm does not have, in programs and commands: which algorithms
have it, or its name here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, get_args, get_origin

from tandem import algorithms
from tandem.algorithms import name_of
from tandem.errors import UnknownNameError, nearest
from tandem.learning.config import Options
from tandem.settings import hints_of, offered
from tandem.zoo.other_names import ARGUMENTS, CHOICES, COMMANDS, COUNTS, FORMS, INSTEAD, OTHER_NAMES

CLOSE = 0.8  # minimum similarity to suggest a setting of another algorithm


def refuse(
    algorithm: str | type,
    values: Mapping[str, Any],
    taken: Iterable[str] = ARGUMENTS,
    command: str = "",
) -> None:
    """Raise UnknownNameError for the first of `values` that is a setting neither of the algorithm
    nor of a run. taken: arguments that may have been meant. command: the command with this flag,
    such as "find lr"; "" for a program."""
    kind = algorithms.get(algorithm).Settings
    own, options = {*hints_of(kind)}, _names(Options)
    odd = next((n for n in values if n not in own | options), None)
    if odd is None:
        return
    name, known = name_of(algorithm), {*own, *options, *taken}
    others = {n: _names(k.Settings) for n, k in algorithms.built_in().items()}
    help = f"`tandem {command or 'train'} {name} --help settings` lists those of {name}."
    close = nearest(odd, known.union(*others.values()), 1)
    if close and close[0] not in known:
        close = nearest(odd, close, 1, CLOSE) or nearest(odd, known, 1)
    fix = ""
    if having := [n for n, names in others.items() if odd in names]:
        fix = f"leave it out: it is a setting of {', '.join(having)}. {help}"
    elif advice := (COMMANDS if command else INSTEAD).get(odd):
        fix = f"{advice.format(odd=odd, algorithm=name)} {help}"
    elif odd in OTHER_NAMES:
        fix = f"{_renamed(odd, known, others, command)} {help}"
    elif chosen := _choice(odd, kind, command):
        fix = f"{chosen} {help}"
    elif not close:
        fix = f"leave it out. {help}"
    elif close[0] not in known:
        where = ", ".join(n for n, names in others.items() if close[0] in names)
        fix = f"leave it out: {_spelled(close[0], command)!r} is a setting of {where}. {help}"
    what = f"{'flag' if command else 'setting'} of {name}"
    shown = [_spelled(n, command) for n in known]
    raise UnknownNameError(what, _spelled(odd, command), shown, fix)


def _names(kind: type) -> set[str]:
    return {s.name for s in offered(kind)}


def _spelled(name: str, command: str) -> str:
    return "--" + name.replace("_", "-") if command else name


def _renamed(odd: str, known: set[str], others: Mapping[str, set[str]], command: str) -> str:
    """Return advice on the name here of a setting from other libraries."""
    names = OTHER_NAMES[odd]
    here = next((name for name in names if name in known), None)
    if here is None:
        owners = ", ".join(n for n, own in others.items() if names[0] in own)
        if not owners:  # not a run option either
            return f"leave it out: it is {names[0]!r} of tandem.train, in a program."
        return f"leave it out: it is {_spelled(names[0], command)!r} here, a setting of {owners}."
    said = f"{_spelled(odd, command)!r} is {_spelled(here, command)!r} here"
    if counts := COUNTS.get(odd):
        return f"{said}: {counts}."
    if value := FORMS.get(odd, FORMS.get(here)):
        shown = f"{_spelled(here, command)} {value}" if command else f"{here}={value!r}"
        return f"{said}, as in {shown}."
    return f"{said}."


def _choice(odd: str, kind: type, command: str) -> str:
    """Return advice if `odd` is a value of a setting: of the algorithm or a run, else of other
    algorithms."""
    others = {n: k.Settings for n, k in algorithms.built_in().items()}
    places = [("", kind), ("", Options), *others.items()]
    name, choice = CHOICES.get(odd, ("", odd))
    found = [(n, name if name in _names(k) else _choosing(odd, k)) for n, k in places]
    name = name or next((setting for _, setting in found if setting), "")
    if not name:
        return ""
    owners = [n for n, setting in found if setting == name]
    shown = f"{_spelled(name, command)} {choice}" if command else f"{name}={choice!r}"
    if "" in owners or not owners:  # options of every run have no owner
        return f"{_spelled(odd, command)!r} is a choice of a setting here: {shown}."
    return f"leave it out: {shown} is a setting of {', '.join(owners)}."


def _choosing(odd: str, kind: type) -> str:
    """Return the only setting that has this value as a choice; "" if there is none, or several."""
    found = [
        name
        for name, hint in hints_of(kind).items()
        if any(odd in get_args(t) for t in (hint, *get_args(hint)) if get_origin(t) is Literal)
    ]
    return found[0] if len(found) == 1 and odd not in ("auto", "no") else ""
