"""Settings of an algorithm or a run: declaring fields, and converting text or Python values to
them."""

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
    """The allowed range of a number: `minimum` to `maximum`, both included, and above `above`; or
    the single number `special`. `expected` and `fix` are the last parts of the error message."""

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
        """Raise SettingError if `value` is out of range: a number, any number of a tuple, or either
        end of a Schedule, which may end at `above` itself. Text, such as "auto", is not checked.
        The error suggests `fix`, or else the default."""
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
        """Return the expected range in words, for settings without an `expected` text."""
        if self.above > -math.inf:
            return f"a number above {self.above}"
        if self.maximum == math.inf:
            return f"at least {self.minimum}"
        return f"between {self.minimum} and {self.maximum}"


def written(default: object) -> str:
    """Return a default as Python source."""
    return repr(str(default)) if isinstance(default, Schedule) else repr(default)


class Needs:
    """Values of other settings that are required for a setting to take effect: for text, the given
    text or one of several; for numbers and True, anything but 0 or False. met: a predicate on all
    settings to use instead."""

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
        """Return text such as "values='quantile'"."""
        one = {n: x[-1] if isinstance(x, tuple) else x for n, x in self.values.items()}
        return " and ".join(f"{n}={x!r}" for n, x in one.items())


SCALES = ("linear", "log", "near one", "powers of two")
PARTS = ("start", "end", "fraction")


@dataclass(frozen=True)
class Search:
    """Values that `tandem sweep` samples for a setting: numbers from `low` to `high`, both included
    (integers for integer settings), or one of `choices`.

    scale: scale of the numbers, one of SCALES. With "near one", low and high are distances below 1,
    on a logarithmic scale.
    part: part of a schedule to sample. A new start scales the end by the same ratio.

    Ranges without a stated source are those of rl-baselines3-zoo 2.9 (hyperparams_opt.py), widened
    to include its tuned settings.
    """

    low: float = math.nan
    high: float = math.nan
    scale: str = "linear"
    choices: tuple[bool | int | float | str, ...] = ()
    part: str = "start"


Searches = Search | tuple[Search, ...]  # several: one per part of a schedule


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
    """Declare a field of a settings dataclass: its default, its meaning (with unit), the source of
    the default, its search range, and the `Limits` of a number. Every number has `minimum` or
    `above`; -math.inf allows any.
    resumable: whether a resumed run may change the value, because it affects where or how the run
    is executed, not its results.
    needs: values of other settings without which this one has no effect."""
    limits = None
    if minimum is not None or above is not None:
        low, over = (-math.inf if bound is None else bound for bound in (minimum, above))
        limits = Limits(low, maximum, over, special, expected, fix)
    known = {"help": help, "source": source, "limits": limits, "search": _listed(search)}
    return field(default=default, metadata=known | {"resumable": resumable, "needs": needs})


def default(value: T, source: str = "", help: str = "", search: Searches = ()) -> T:
    """Replace the default of a base class's setting, with its source, and the help text and search
    range if they differ. The limits stay."""
    other = {"help": help, "search": _listed(search)}
    known = {"source": source} | {name: said for name, said in other.items() if said}
    return field(default=value, metadata=known)


def _listed(search: Searches) -> tuple[Search, ...]:
    return (search,) if isinstance(search, Search) else search


class Declared(NamedTuple):
    """The declaration of a setting."""

    name: str
    default: Any
    help: str
    source: str
    limits: Limits | None  # None: not a number
    search: tuple[Search, ...]  # search range of a sweep; (): sampled only on request
    resumable: bool  # whether a resumed run may change it
    needs: Needs | None  # None: always has an effect


def declared(kind: type) -> list[Declared]:
    """Return every setting of a settings dataclass in order, including metadata from its base
    classes."""
    # the metadata of a field declared without `setting`
    plain = Declared("", None, "", "", None, (), False, None)._asdict()
    del plain["name"], plain["default"]
    metadata: dict[str, dict[str, Any]] = {}
    for base in reversed(kind.__mro__):
        for name, f in base.__dict__.get("__dataclass_fields__", {}).items():
            metadata[name] = {**metadata.get(name, plain), **f.metadata}
    return [Declared(f.name, f.default, **metadata[f.name]) for f in fields(kind)]


def by_name(settings: Any) -> dict[str, Any]:
    """Return the values of settings by name."""
    return {f.name: getattr(settings, f.name) for f in fields(settings)}


def offered(kind: type) -> list[Declared]:
    """Return the settings of a class that users can change. Leaves out inherited settings that it
    `lacks`, and those that need one of them to take effect."""
    lacks = set(getattr(kind, "lacks", ()))
    return [
        s
        for s in declared(kind)
        if s.name not in lacks and not (s.needs is not None and s.needs.values.keys() & lacks)
    ]


def idle(settings: object) -> dict[str, Needs]:
    """Return the settings that have no effect given the others, with what they need."""
    gated = ((s.name, s.needs) for s in declared(type(settings)))
    return {name: needs for name, needs in gated if needs is not None and not needs.met(settings)}


def effective(settings: Any, given: Iterable[str]) -> tuple[Any, list[str]]:
    """Return the settings with ineffective ones reset to their defaults, and notes on those among
    them that the user has `given` by name."""
    lacks, usual = getattr(settings, "lacks", ()), type(settings)()
    found = {name: needs for name, needs in idle(settings).items() if name not in lacks}
    values = {
        n: x for n in given if n in found and (x := getattr(settings, n)) != getattr(usual, n)
    }
    notes = [f"{name}={x} has no effect without {found[name]}." for name, x in values.items()]
    return replace(settings, **{name: getattr(usual, name) for name in found}), notes


def hints_of(kind: Any) -> dict[str, Any]:
    """Return the type of every setting of a settings dataclass by name. Raises NameError for a type
    that its module does not define."""
    if "_hints" not in vars(kind):  # cached: a class sent to another process leaves its module
        kind._hints = get_type_hints(kind)
    return kind._hints


def check_ranges(settings: object) -> None:
    """Raise SettingError for the first setting that is out of range."""
    for s in declared(type(settings)):
        if s.limits is not None:
            s.limits.check(s.name, getattr(settings, s.name), s.default)


@dataclass(frozen=True)
class Schedule:
    """A number that may change during a run: constant at `start`, or linear from `start` to `end`
    over the first `fraction` of its steps, then `end`. A fraction above 1 ends after the run. As
    text: "3e-4", "3e-4:0", "1:0.05:0.2"."""

    start: float
    end: float | None = None
    fraction: float = 1.0

    def __call__(self, progress: Array) -> Array:
        """Return the value at `progress` in [0, 1] (a number or an array). Beyond 1 the final value
        remains."""
        if not isinstance(progress, (float, int, np.ndarray, np.generic)):  # a tensor of a backend
            end = self.start if self.end is None else self.end
            done = ops.of(progress).clip(progress / self.fraction, 0.0, 1.0)
            return self.start + (end - self.start) * done
        if self.end is None:
            return np.full(np.shape(progress), self.start, np.float32)[()]
        done = np.clip(np.asarray(progress, np.float64) / self.fraction, 0.0, 1.0)
        return (self.start + (self.end - self.start) * done).astype(np.float32)

    @classmethod
    def parse(cls, value: object) -> Schedule:
        """Create a Schedule from a number, text, or a Schedule. Raises ValueError for anything
        else."""
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
        """Return the same schedule with another start; the end keeps its ratio to it."""
        if self.end is None or not self.start:
            return replace(self, start=start)
        return replace(self, start=start, end=float(f"{start * self.end / self.start:.3g}"))

    def stretched(self, ratio: float) -> Schedule:
        """Return the schedule for a run with 1 / `ratio` times the steps. A shorter run follows its
        first part. In a longer run, a schedule that ended after the run ends at the same step or
        with the run, whichever is later; any other covers the same fraction of the run. The
        fraction is rounded to four significant digits."""
        fraction = max(min(1.0, self.fraction), self.fraction * ratio)
        return self if self.end is None else replace(self, fraction=float(f"{fraction:.4g}"))

    def __str__(self) -> str:
        parts = (
            [self.start]
            if self.end is None
            else [self.start, self.end] + ([self.fraction] if self.fraction != 1 else [])
        )
        # repr round-trips exactly
        return ":".join(repr(float(p)).removesuffix(".0") for p in parts)


def apply(settings: Any, values: dict[str, object]) -> Any:
    """Return `settings` with the given values, checked and converted field by field.

    Raises UnknownNameError for an unknown setting, SettingError for a value of the wrong type.
    """
    hints, names = hints_of(type(settings)), [f.name for f in fields(settings)]
    for name in values:
        if name not in names:
            raise UnknownNameError("setting", name, names)
    defaults = {s.name: s.default for s in declared(type(settings))}
    return replace(settings, **{n: convert(n, v, hints[n], defaults[n]) for n, v in values.items()})


def convert(name: str, value: object, hint: Any, default: Any) -> Any:
    """Convert a value from Python or the command line to a setting of type `hint`. Errors suggest
    the default."""
    try:
        return _converted(value, hint)
    except (TypeError, ValueError, OverflowError) as error:
        expected, fix = describe_type(hint), f"try {name}={written(default)}."
        if name == "optimizer":
            expected += "; or for tandem.train an optimizer of keras.optimizers or torch.optim"
        if hint is Schedule and not isinstance(value, (str, Number)):  # such as a function
            example = default if default.end is not None else Schedule(default.start or 0.01, 0.0)
            fix = f"try {name}='{example}', a linear schedule from the first number to the second"
            if name.endswith("learning_rate") and type(value).__module__.startswith("keras"):
                fix += "; or pass yours to an optimizer: optimizer=keras.optimizers.Adam(schedule)"
            fix += "."
        happened = f"setting {name}={value!r} (a {type(value).__name__})."
        raise SettingError(happened, expected, fix) from error


def flag(name: str, value: object) -> str:
    """Return a setting as a command-line flag of `tandem train`."""
    written = quote(f"--{name.replace('_', '-')}")
    if isinstance(value, bool):
        return written if value else f"--no-{written.removeprefix('--')}"
    if isinstance(value, (list, tuple)):
        if any(isinstance(x, str) for x in value):  # a flag that can be repeated
            return " ".join(flag(name, x) for x in value)
        value = ",".join(map(str, value))
    text = quote(str(value))
    return f"{written}={text}" if text.startswith("-") else f"{written} {text}"


def shell_path(path: str | Path) -> str:
    """Quote a path for a command line, so that it does not look like a flag."""
    return quote(f"./{path}" if str(path).startswith("-") else str(path))


def nearest_multiple(of: int, near: int) -> int:
    """Return the multiple of `of`, above 0, that is closest to `near`."""
    return of * max(1, round(near / of))


def whole_number(name: str, value: object, least: int = 0) -> int:
    """Return `value` as an integer of at least `least`. Raises SettingError for anything else."""
    number: int = convert(name, value, int, max(least, 1))
    if number < least:
        raise SettingError(f"setting {name}={value}.", f"at least {least}", f"try {name}={least}.")
    return number


def as_path(name: str, value: object) -> Path:
    """Return text or a path as a Path. Raises SettingError for anything else."""
    if not value or not isinstance(value, (str, os.PathLike)):
        raise SettingError(
            f"{name}={value!r} (a {type(value).__name__}).",
            "a path, as text or a pathlib.Path",
            f"give {name}='runs/mine'.",
        )
    return Path(value)


IMPORTED: list[str] = []  # modules of --import, which worker processes also import
FOLDERS: set[str] = set()  # working directories that `module_here` has added to sys.path


def module_here(name: str) -> ModuleType | None:
    """Import the module of this name, searching the working directory last. Return None if there is
    none, for example if the name is a path. Errors from importing something that the module needs
    are raised."""
    if name.startswith("."):  # would be relative to a package
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
    """Raise SettingError for a file name instead of a module, in module:name or alone. The error
    suggests the module followed by `name`."""
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
    """Return the object named by "module:name", searching the working directory too. Raises
    UnknownNameError if there is none that `accepts` returns True for; the error lists the names for
    which `offers` does.

    what: a description of the object. form: its syntax, such as MODULE:CLASS.
    """
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
            # a repeatable flag; the TEXT of --writer NAME=TEXT is not split
            for p in (part.split(",") if isinstance(part, str) and "=" not in part else [part])
            if p != ""  # empty flag: --writer ''
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
        # NumPy integers too; conversion through float would lose digits
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
    """Return a description of a setting's type."""
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
