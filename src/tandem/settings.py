"""Settings of an algorithm or a run: how a field is declared, and how text or a program's value
becomes one."""

from __future__ import annotations

import importlib
import math
import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from numbers import Integral, Number
from pathlib import Path, PurePath
from shlex import quote
from types import ModuleType, UnionType
from typing import (
    Any,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np

from tandem import ops
from tandem.errors import SettingError, UnknownNameError
from tandem.types import Array

T = TypeVar("T")


@dataclass(frozen=True)
class Limits:
    """The numbers that a setting may be: from `minimum` to `maximum`, both included, and above
    `above`; or the one number `special`. `expected` and `fix` are the last parts of the error."""

    minimum: float = -math.inf
    maximum: float = math.inf
    above: float = -math.inf
    special: float | None = None
    expected: str = ""
    fix: str = ""

    def check(
        self,
        name: str,
        value: float | str | Schedule | tuple[float | str, ...],
        default: object,
    ) -> None:
        """SettingError where `value` is outside: a number, each number of a tuple, or both ends of
        a Schedule, which may end on `above` itself. Text, such as "auto", has no limits. The
        advice is the setting's own, or its default."""
        if isinstance(value, Schedule):
            holds = self._holds(value.start) and (value.end is None or self._holds(value.end, True))
        else:
            numbers = value if isinstance(value, tuple) else (value,)
            holds = all(isinstance(n, str) or self._holds(n) for n in numbers)
        if not holds:
            fix = self.fix or f"try {name}={written(default)}."
            raise SettingError(f"setting {name}={value}.", self.expected or self._words(), fix)

    def _holds(self, number: float, closed: bool = False) -> bool:
        if number == self.special:
            return True
        above = number > self.above or (closed and number == self.above)
        return above and self.minimum <= number <= self.maximum

    def _words(self) -> str:
        """The expected values in words, where a setting has no text of its own."""
        if self.above > -math.inf:
            return f"a number above {self.above}"
        if self.maximum == math.inf:
            return f"at least {self.minimum}"
        return f"between {self.minimum} and {self.maximum}"


def written(default: object) -> str:
    """A default as a program writes it."""
    return repr(str(default)) if isinstance(default, Schedule) else repr(default)


class Needs:
    """The values of other settings that one needs to have an effect: text as it is here or one of
    several, and anything but 0 or False for a number or True. met: a question of all settings
    instead, where it is another."""

    def __init__(self, met: Callable[[Any], bool] | None = None, /, **values: object) -> None:
        self.values = values
        self.met = met or self._met

    def _met(self, settings: object) -> bool:
        for name in (n for n in self.values if hasattr(settings, n)):
            value, wanted = getattr(settings, name), self.values[name]
            choices = (wanted,) if isinstance(wanted, str) else wanted
            if not (value in choices if isinstance(choices, tuple) else value):
                return False
        return True

    def __str__(self) -> str:
        """As in "values='quantile'"."""
        one = {n: x[-1] if isinstance(x, tuple) else x for n, x in self.values.items()}
        return " and ".join(f"{n}={x!r}" for n, x in one.items())


SCALES = ("linear", "log", "near one", "powers of two")
PARTS = ("start", "end", "fraction")


@dataclass(frozen=True)
class Search:
    """Where `tandem sweep` looks for a setting: among numbers from `low` to `high`, both included
    and whole where the setting is, or among `choices`.

    scale: of the numbers, one of SCALES; with "near one" low and high are how far the setting is
    below 1, on a logarithmic scale.
    part: of a schedule; another start takes the end along, in the same ratio.
    Ranges without a word on where they are from are those of rl-baselines3-zoo 2.9
    (hyperparams_opt.py), widened so that its tuned settings lie within.
    """

    low: float = math.nan
    high: float = math.nan
    scale: str = "linear"
    choices: tuple[bool | int | float | str, ...] = ()
    part: str = "start"


Searches = Search | tuple[Search, ...]  # several: one for each part of a schedule


def setting(
    default: T,
    help: str,
    source: str = "",
    *,
    search: Searches = (),
    minimum: float | None = None,
    maximum: float = math.inf,
    above: float | None = None,
    special: float | None = None,
    expected: str = "",
    fix: str = "",
    resumable: bool = False,
    needs: Needs | None = None,
) -> T:
    """A field of a settings dataclass: its default, what it means (with unit), where the default
    comes from, where a sweep looks for it, and the `Limits` of a number. Every number has `minimum`
    or `above`; -math.inf says that it may be any. resumable: a run may be resumed with another
    value, since it says where or how the run is executed, not what it computes. needs: what others
    have to be, without which it has no effect."""
    limits = None
    if minimum is not None or above is not None:
        low, over = (-math.inf if bound is None else bound for bound in (minimum, above))
        limits = Limits(low, maximum, over, special, expected, fix)
    known = {"help": help, "source": source, "limits": limits, "search": _listed(search)}
    return field(default=default, metadata=known | {"resumable": resumable, "needs": needs})


def default(value: T, source: str = "", help: str = "", search: Searches = ()) -> T:
    """Another default for a setting of a base class, where it comes from, and what the setting
    means and where a sweep looks for it, if that is not the same here. The limits stay."""
    other = {"help": help, "search": _listed(search)}
    known = {"source": source} | {name: said for name, said in other.items() if said}
    return field(default=value, metadata=known)


def _listed(search: Searches) -> tuple[Search, ...]:
    return (search,) if isinstance(search, Search) else search


class Declared(NamedTuple):
    """A setting as it is declared."""

    name: str
    default: Any
    help: str
    source: str
    limits: Limits | None  # None: no number
    search: tuple[Search, ...]  # where a sweep looks for it; (): it does not, unless it is told
    resumable: bool  # whether a resumed run may have another value
    needs: Needs | None  # None: it always has an effect


def declared(kind: type) -> list[Declared]:
    """Every setting of a settings dataclass, in order, with what it has of its base classes."""
    # of a field that no `setting` made
    plain = Declared("", None, "", "", None, (), False, None)._asdict()
    del plain["name"], plain["default"]
    metadata: dict[str, dict[str, Any]] = {}
    for base in reversed(kind.__mro__):
        for name, f in base.__dict__.get("__dataclass_fields__", {}).items():
            metadata[name] = {**metadata.get(name, plain), **f.metadata}
    return [Declared(f.name, f.default, **metadata[f.name]) for f in fields(kind)]


def by_name(settings: Any) -> dict[str, Any]:
    """The values of settings by name."""
    return {f.name: getattr(settings, f.name) for f in fields(settings)}


def offered(kind: type) -> list[Declared]:
    """The settings of a class that can be anything but what they are: without those that it
    `lacks`, which it has inherited and refuses, and those that have an effect with these alone."""
    lacks = set(getattr(kind, "lacks", ()))
    return [
        s
        for s in declared(kind)
        if s.name not in lacks and not (s.needs is not None and s.needs.values.keys() & lacks)
    ]


def idle(settings: object) -> dict[str, Needs]:
    """The settings that have no effect beside the others, with what they need."""
    gated = ((s.name, s.needs) for s in declared(type(settings)))
    return {name: needs for name, needs in gated if needs is not None and not needs.met(settings)}


def effective(settings: Any, given: Iterable[str]) -> tuple[Any, list[str]]:
    """The settings, with the defaults of those that have no effect; and notes on those of them that
    a user has `given`, by name."""
    lacks, usual = getattr(settings, "lacks", ()), type(settings)()
    found = {name: needs for name, needs in idle(settings).items() if name not in lacks}
    values = {
        n: x for n in given if n in found and (x := getattr(settings, n)) != getattr(usual, n)
    }
    notes = [f"{name}={x} has no effect without {found[name]}." for name, x in values.items()]
    return replace(settings, **{name: getattr(usual, name) for name in found}), notes


def hints_of(kind: Any) -> dict[str, Any]:
    """The type of every setting of a settings dataclass, by name. NameError for one that its module
    does not know."""
    if "_hints" not in vars(kind):  # kept: a class that is sent to a process leaves its module
        kind._hints = get_type_hints(kind)
    return kind._hints


def check_ranges(settings: object) -> None:
    """SettingError for the first setting that is outside of its limits."""
    for s in declared(type(settings)):
        if s.limits is not None:
            s.limits.check(s.name, getattr(settings, s.name), s.default)


@dataclass(frozen=True)
class Schedule:
    """A number that may change over a run: `start`, or linearly from `start` to `end` over the
    first `fraction` of its steps, then `end`. A fraction above 1 ends after the run. Written as
    text: "3e-4", "3e-4:0", "1:0.05:0.2"."""

    start: float
    end: float | None = None
    fraction: float = 1.0

    def __call__(self, progress: Array) -> Array:
        """The value at `progress` in [0, 1] (a number or an array); beyond 1 it stays at its
        end."""
        if not isinstance(progress, (float, int, np.ndarray, np.generic)):  # an engine's
            end = self.start if self.end is None else self.end
            done = ops.of(progress).clip(progress / self.fraction, 0.0, 1.0)
            return self.start + (end - self.start) * done
        if self.end is None:
            return np.full(np.shape(progress), self.start, np.float32)[()]
        done = np.clip(np.asarray(progress, np.float64) / self.fraction, 0.0, 1.0)
        return (self.start + (self.end - self.start) * done).astype(np.float32)

    @classmethod
    def parse(cls, value: object) -> Schedule:
        """From a number, text, or a Schedule; ValueError for anything else."""
        if isinstance(value, Schedule):
            return value
        parts = [float(p) for p in str(value).split(":")]
        if (
            not 1 <= len(parts) <= 3
            or not np.isfinite(parts).all()
            or min(parts[2:], default=1) <= 0
        ):
            raise ValueError(f"{value!r} is not a schedule")
        return cls(*parts)

    def moved(self, start: float) -> Schedule:
        """The same form from another start: the end is in the same ratio to it."""
        if self.end is None or not self.start:
            return replace(self, start=start)
        return replace(self, start=start, end=float(f"{start * self.end / self.start:.3g}"))

    def stretched(self, ratio: float) -> Schedule:
        """The schedule for a run with 1 / `ratio` times the steps. A shorter run follows the first
        part of it. In a longer run, a schedule that ended after the run ends at the same step or
        with the run, whichever is later; any other spans the same part of the run. The fraction is
        rounded to four significant digits."""
        fraction = max(min(1.0, self.fraction), self.fraction * ratio)
        return self if self.end is None else replace(self, fraction=float(f"{fraction:.4g}"))

    def __str__(self) -> str:
        parts = (
            [self.start]
            if self.end is None
            else [self.start, self.end] + ([self.fraction] if self.fraction != 1 else [])
        )
        # repr: read back, it is the same number
        return ":".join(repr(float(p)).removesuffix(".0") for p in parts)


def apply(settings: Any, values: dict[str, object]) -> Any:
    """`settings` with what is given, checked and converted field by field.

    Raises UnknownNameError for a name that is no setting, SettingError for a value of the wrong
    type.
    """
    hints, names = hints_of(type(settings)), [f.name for f in fields(settings)]
    for name in values:
        if name not in names:
            raise UnknownNameError("setting", name, names)
    defaults = {s.name: s.default for s in declared(type(settings))}
    return replace(settings, **{n: convert(n, v, hints[n], defaults[n]) for n, v in values.items()})


def convert(name: str, value: object, hint: Any, default: Any) -> Any:
    """A value for a setting of type `hint`, from what a program or a command line gave; the default
    is what an error advises."""
    try:
        return _converted(value, hint)
    except (TypeError, ValueError, OverflowError) as error:
        expected, fix = describe_type(hint), f"try {name}={written(default)}."
        if name == "optimizer":
            expected += "; or for tandem.train an optimizer of keras.optimizers or torch.optim"
        if hint is Schedule and not isinstance(value, (str, Number)):  # a function, say
            example = default if default.end is not None else Schedule(default.start or 0.01, 0.0)
            fix = f"try {name}='{example}', a linear schedule from the first number to the second"
            if name.endswith("learning_rate") and type(value).__module__.startswith("keras"):
                fix += "; or pass yours to an optimizer: optimizer=keras.optimizers.Adam(schedule)"
            fix += "."
        happened = f"setting {name}={value!r} (a {type(value).__name__})."
        raise SettingError(happened, expected, fix) from error


def flag(name: str, value: object) -> str:
    """A setting as `tandem train` takes it on a command line."""
    written = quote(f"--{name.replace('_', '-')}")
    if isinstance(value, bool):
        return written if value else f"--no-{written.removeprefix('--')}"
    if isinstance(value, (list, tuple)):
        if any(isinstance(x, str) for x in value):  # a flag that stands several times
            return " ".join(flag(name, x) for x in value)
        value = ",".join(map(str, value))
    text = quote(str(value))
    return f"{written}={text}" if text.startswith("-") else f"{written} {text}"


def shell_path(path: str | Path) -> str:
    """A path as a command line takes it: quoted, and none that looks like a flag."""
    return quote(f"./{path}" if str(path).startswith("-") else str(path))


def nearest_multiple(of: int, near: int) -> int:
    """The multiple of a number next to another, above 0."""
    return of * max(1, round(near / of))


def whole_number(name: str, value: object, least: int = 0) -> int:
    """A whole number that is not below `least`. SettingError for anything else."""
    number: int = convert(name, value, int, max(least, 1))
    if number < least:
        raise SettingError(f"setting {name}={value}.", f"at least {least}", f"try {name}={least}.")
    return number


def as_path(name: str, value: object) -> Path:
    """A path, from text or a Path. SettingError for anything else."""
    if not value or not isinstance(value, (str, os.PathLike)):
        raise SettingError(
            f"{name}={value!r} (a {type(value).__name__}).",
            "a path, as text or a pathlib.Path",
            f"give {name}='runs/mine'.",
        )
    return Path(value)


IMPORTED: list[str] = []  # the modules of --import, which processes of this one's import too
FOLDERS: set[str] = set()  # working directories that `module_here` has put on sys.path


def module_here(name: str) -> ModuleType | None:
    """The module of this name, looked for in the working directory after everywhere else; None
    where there is none, as of a path. Raises what importing something raises that the module
    needs."""
    if name.startswith("."):  # which would be relative to a package
        return None
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
        FOLDERS.add(os.getcwd())
    try:
        return importlib.import_module(name)
    except (ImportError, ValueError) as error:
        if getattr(error, "name", name) not in (name, name.split(".")[0]):
            raise
    return None


def expect_module(path: str, name: str = ":NAME") -> None:
    """SettingError for a file where a module belongs: in module:name, or alone, in whose place the
    module and `name` are advised."""
    file, colon, given = path.partition(":")
    place = PurePath(file)
    if place.suffix == ".py" or (len(place.parts) > 1 and (colon or not name)):
        there = f", in the folder {place.parent}" * bool(place.parent.name)
        fix = f"write {place.stem}{colon + given or name}{there}"
        raise SettingError(f"{file} is a file name.", "a module", fix)


def named_here(
    path: str,
    what: str,
    form: str,
    expected: str,
    accepts: Callable[[object], bool],
    offers: Callable[[object], bool],
) -> Any:
    """The object that "module:name" names, looked for in the working directory too. Raises
    UnknownNameError where there is nothing that this `accepts`, with the names of what the module
    `offers`.

    what: it is, in words. form: how it is written, as in MODULE:CLASS."""
    expect_module(path)
    module_name, _, name = path.partition(":")
    module = module_here(module_name)
    found = getattr(module, name, None)
    if not accepts(found):
        there = vars(module).items() if module else ()
        known = [f"{module_name}:{n}" for n, x in there if n[0] != "_" and offers(x)]
        fix = "" if known else f"write {form} with an importable module."
        raise UnknownNameError(what, path, known, fix, expected)
    return found


def _converted(value: Any, hint: Any) -> Any:
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        if value not in inner:
            raise ValueError(value)
        return value
    if origin in (Union, UnionType):
        for choice in inner:
            with suppress(TypeError, ValueError):
                return _converted(value, choice)
        raise ValueError(value)
    if hint is Schedule:
        return Schedule.parse(value)
    if origin is tuple:
        parts = value.replace(",", " ").split() if isinstance(value, str) else value
        return tuple(
            _converted(p, inner[0])
            for part in ([parts] if isinstance(parts, int) else parts)
            # of a flag that may stand several times; the TEXT of --writer NAME=TEXT is left whole
            for p in (part.split(",") if isinstance(part, str) and "=" not in part else [part])
            if p != ""  # of a flag: --writer ''
        )
    if hint is bool:
        words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
        if isinstance(value, str) and value.lower() in words:
            return words[value.lower()]
        if not isinstance(value, bool):
            raise TypeError(value)
        return value
    if isinstance(value, bool):
        raise TypeError(value)
    if hint is int:
        # NumPy's too; all their digits, of which a float would lose some
        if isinstance(value, Integral):
            return int(value)
        number = float(value)
        if number != int(number):
            raise ValueError(value)
        return int(number)
    if hint is float and not math.isfinite(float(value)):
        raise ValueError(value)
    if hint is str and not isinstance(value, str):
        raise TypeError(value)
    return hint(value)


def describe_type(hint: Any) -> str:
    """A setting's type in words."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        return " or ".join(map(repr, inner))
    if origin in (Union, UnionType):
        return " or ".join(describe_type(t) for t in inner)
    if hint is Schedule:
        return "a number, or a schedule 'start:end' or 'start:end:fraction'"
    if origin is tuple:
        return "names, as in wandb,mlflow" if inner[0] is str else "whole numbers, as in 64,64"
    return {int: "a whole number", float: "a number", bool: "true or false", str: "text"}.get(
        hint, str(hint)
    )
