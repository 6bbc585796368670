"""What commands write to stdout: their results alone. What environments and libraries print there,
from C code and in other processes too, goes to stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from io import TextIOWrapper
from typing import Any, TextIO

from tandem.platforms import flush_c_output

_streams: list[tuple[TextIO, str]] = []  # of the commands under way, with where they began


def stream() -> TextIO:
    """The stdout of the command."""
    return _streams[-1][0] if _streams else sys.stdout


def echo(*objects: object, **options: Any) -> None:
    """Prints to the stdout of the command."""
    print(*objects, file=stream(), **options)


def shown(path: Any) -> str:
    """A path as seen from where the command began."""
    began = _streams[-1][1] if _streams else os.getcwd()
    return str(path).removeprefix(os.path.join(began, ""))


@contextmanager
def reserved() -> Iterator[None]:
    """Within it, descriptor 1 and `sys.stdout` are stderr, and `stream` is what stdout was."""
    stdout, before = sys.stdout, None
    # without one, stdout was closed when this process began
    own: TextIO = stdout or open(os.devnull, "w", encoding="utf-8")
    if stdout is not None:
        with suppress(OSError):
            before = os.dup(1)
    if before is not None:
        if isinstance(stdout, TextIOWrapper) and stdout is sys.__stdout__:
            stdout.flush()
            lines = 1 if stdout.isatty() else -1
            own = os.fdopen(before, "w", lines, stdout.encoding, stdout.errors, closefd=False)
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno() if sys.stderr is None else 2, 1)
    _streams.append((own, os.getcwd()))
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _streams.pop()
        if before is not None:
            flush_c_output()
            os.dup2(before, 1)
        try:
            own.flush() if own is stdout else own.close()
        finally:
            if before is not None:
                os.close(before)
