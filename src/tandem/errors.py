"""All errors that tandem raises deliberately. Each message has two lines: what is wrong (with the
received values) and what was expected; and the fix. Every error derives from `TandemError` and from
the built-in exception that callers would expect."""

from __future__ import annotations

import difflib
import inspect
import logging
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from math import prod
from numbers import Real
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tandem.types import Array

FEW = 20  # names that an error lists in addition to a fix
_notes: ContextVar[list[str] | None] = ContextVar("notes", default=None)


class TandemError(Exception):
    """The base class of all errors of this library. instead: values by setting that do not
    contradict the other settings, best first."""

    def __init__(self, happened: str, expected: str = "", fix: str = "", **instead: object) -> None:
        self.happened, self.expected, self.fix, self.instead = happened, expected, fix, instead
        wrong = happened
        if expected:
            wrong = f"{happened.removesuffix('.')}; expected {expected.removesuffix('.')}."
        super().__init__(f"{wrong}\nFix: {fix}" if fix else wrong)

    def __reduce__(self) -> tuple[object, ...]:
        # errors are sent between processes with all their attributes
        return _rebuild, (
            type(self),
            str(self),
            self.__dict__,
        )


class UnknownNameError(TandemError, ValueError):
    """An algorithm, environment, setting, folder or flag that does not exist. Lists the most
    similar names."""

    def __init__(
        self, kind: str, name: object, known: Iterable[str], fix: str = "", expected: str = ""
    ) -> None:
        known = sorted(set(known))
        self.nearest = nearest(name, known) if isinstance(name, str) else []
        if not fix and self.nearest:
            fix = f"did you mean {' or '.join(map(repr, self.nearest))}?"
        if not (expected or self.nearest) and (not fix or len(known) <= FEW):
            shown = ", ".join(known[:40]) + (", ..." if len(known) > 40 else "")
            expected, fix = f"one of {shown}", fix or "choose one of those."
        super().__init__(f"there is no {kind} {name!r}.", expected, fix)


class SettingError(TandemError, ValueError):
    """A setting of the wrong type or out of range, or settings that contradict each other."""


class SpaceError(TandemError, ValueError):
    """An observation or action space that the algorithm does not support."""


class NetworkError(TandemError, ValueError):
    """A network of the wrong type or with outputs of the wrong shape."""


class NetworkFault(NetworkError):
    """A custom network that raised an exception, which is `__cause__`."""


class WorkerError(TandemError, RuntimeError):
    """Worker processes that died, did not respond or raised an exception more often than
    allowed."""


class EnvironmentFault(TandemError, RuntimeError):
    """An environment that broke its contract: a wrong shape, NaN, or an exception."""


class NonFiniteError(TandemError, FloatingPointError):
    """NaN or infinity in an observation, reward, loss or gradient. It has not affected any
    weight."""


class CheckpointError(TandemError, RuntimeError):
    """A checkpoint that is missing, truncated, altered or foreign, or cannot be loaded without a
    network."""


class ResumeError(TandemError, RuntimeError):
    """A run that cannot be resumed as it was."""


class UnrepeatableError(ResumeError):
    """Episodes that could not be replayed up to the point where a checkpoint was written."""


class EngineError(TandemError, RuntimeError):
    """A framework, Keras backend or device that is not installed, not available, or already
    replaced by another one."""


class PluginError(TandemError, ImportError):
    """A plug-in of an installed package that cannot be used: it cannot be imported, does not match
    its entry point, or has a name that another package uses."""


class MemoryBudgetError(TandemError, MemoryError):
    """Data that would not fit into this machine's memory or on its disk."""


class HubError(TandemError, RuntimeError):
    """The hub of models or datasets cannot be reached or refuses access; or its content is not a
    run, too large or not safe."""


class RunFolderError(TandemError, OSError):
    """A run folder that does not exist, is not a run, or cannot be written."""


def at_least(
    name: str, value: object, minimum: float, kind: type[TandemError] = SettingError
) -> None:
    """Raise `kind` if `value` is below `minimum` or not a number. The message shows `name` before
    the value."""
    if isinstance(value, bool) or not isinstance(value, Real) or not float(value) >= minimum:
        raise kind(
            f"{name}={value!r}.",
            f"at least {minimum}",
            f"give {name}={minimum} or more.",
        )


def one_of(
    name: str, value: object, choices: Iterable[object], kind: type[TandemError] = SettingError
) -> None:
    """Raise `kind` if `value` is not among `choices`. The message suggests the most similar one."""
    choices = list(choices)
    if not any(value is c or value == c for c in choices):
        close = nearest(value, map(str, choices), 1) if isinstance(value, str) else []
        expected = f"one of {', '.join(map(repr, choices))}"
        raise kind(
            f"{name}={value!r}.", expected, f"give {name}={(close[0] if close else choices[0])!r}."
        )


def brief(error: BaseException) -> str:
    """Return the beginning of another library's error on one line, without color codes."""
    return re.sub(r"\x1b\[\d*m|\s+", " ", str(error)).strip()[:200] or type(error).__name__


def same_shape(
    name: str, array: Array, shape: Iterable[int | None], kind: type[TandemError] = SpaceError
) -> None:
    """Raise `kind` if `array` does not have the shape `shape`, in which -1 matches any length. A
    length that is unknown during tracing (None) also matches."""
    actual, expected = tuple(array.shape), tuple(shape)
    if actual == expected:
        return
    fits = (e in (-1, None, n) or n is None for n, e in zip(actual, expected, strict=False))
    if len(actual) != len(expected) or not all(fits):
        lengths = ", ".join("any" if n in (-1, None) else str(n) for n in expected)
        known = [n for n in expected if n not in (-1, None)]
        alike = None not in actual and len(known) == len(expected) and prod(actual) == prod(known)
        raise kind(
            f"{name} has shape {actual}.",
            f"shape ({lengths})",
            f"give {name}.reshape({lengths})." if alike else f"give {name} in this shape.",
        )


def same_shapes(shape: Iterable[int | None], **arrays: Array) -> None:
    """Raise SpaceError unless all `arrays` have the shape `shape`: `same_shape` for each, named by
    its keyword."""
    for name, array in arrays.items():
        same_shape(name, array, shape)


def _rebuild(kind: type[TandemError], message: str, parts: dict[str, object]) -> TandemError:
    # the base class that defines its memory layout: only its `__new__` can create it
    layout: Any = kind.__base__
    error: TandemError = layout.__new__(kind, message)
    error.args = (message,)
    error.__dict__.update(parts)
    return error


def nearest(name: str, known: Iterable[str], n: int = 3, cutoff: float = 0.5) -> list[str]:
    """Return the names most similar to `name`, best first, ignoring case. Leading dashes of flags
    are ignored too, since they would make any two flags similar."""
    by_lower = {k.lower().lstrip("-"): k for k in known}
    if name.lower() in by_lower:
        return [by_lower[name.lower()]]
    found = difflib.get_close_matches(name.lower().lstrip("-"), by_lower, n=n, cutoff=cutoff)
    return [by_lower[m] for m in found]


def misfit(function: Callable[..., object], /, *arguments: object, **named: object) -> str:
    """Return why a function cannot be called with these arguments, without calling it; "" if it
    can, or if that is unknown."""
    try:
        inspect.signature(function).bind(*arguments, **named)
    except TypeError as error:
        return str(error)
    except ValueError:  # a function written in C
        return ""
    return ""


def note(*texts: str) -> None:
    """Log a note about a run that works: a setting without effect, a missing evaluation. Within
    `noting`, each note is logged once and kept for result.json."""
    notes = collected()
    for text in texts:
        if text not in notes:
            notes.append(text)
            logging.getLogger("tandem").warning("Note: %s", text)


@contextmanager
def attempt(failure: str) -> Iterator[None]:
    """Turn an exception in the block into a note that starts with `failure`, and continue, so that
    trained weights are not lost."""
    try:
        yield
    except Exception as error:
        said = error.happened if isinstance(error, TandemError) else str(error)
        note(f"{failure}: {said.partition(chr(10))[0] or type(error).__name__}")


@contextmanager
def needs(package: str, purpose: str, fix: str) -> Iterator[None]:
    """Raise EngineError if the block cannot import a package, with its purpose and the fix."""
    try:
        yield
    except ImportError as error:
        expected = f"{package} {purpose}"
        raise EngineError(f"{package} is not installed.", expected, fix) from error


@contextmanager
def noting(notes: list[str] | None = None) -> Iterator[None]:
    """Collect the notes of the block or the decorated function in `notes` (default: a new list).
    Notes already in it are not logged again."""
    token = _notes.set([] if notes is None else notes)
    try:
        yield
    finally:
        _notes.reset(token)


def collected() -> list[str]:
    """Return the list of the innermost `noting`, or a new one outside of any."""
    notes = _notes.get()
    return [] if notes is None else notes


def warn(text: str) -> None:
    """Issue a warning that points to the line that called this library."""
    frame, level = sys._getframe(1), 2
    ours = ("tandem.", "contextlib")  # which calls decorated functions
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(ours):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, stacklevel=level)
