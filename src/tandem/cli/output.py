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

_streams: list[TextIO] = []  # of the commands under way


def stream() -> TextIO:
    """The stdout of the command."""
    return _streams[-1] if _streams else sys.stdout


def echo(*objects: object, **options: Any) -> None:
    """Prints to the stdout of the command."""
    print(*objects, file=stream(), **options)


@contextmanager
def reserved() -> Iterator[None]:
    """Within it, descriptor 1 and `sys.stdout` are stderr, and `stream` is what stdout was."""
    shown, before = sys.stdout, None
    # without one, stdout was closed when this process began
    own: TextIO = shown or open(os.devnull, "w", encoding="utf-8")
    if shown is not None:
        with suppress(OSError):
            before = os.dup(1)
    if before is not None:
        if isinstance(shown, TextIOWrapper) and shown is sys.__stdout__:
            shown.flush()
            lines = 1 if shown.isatty() else -1
            own = os.fdopen(before, "w", lines, shown.encoding, shown.errors, closefd=False)
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno() if sys.stderr is None else 2, 1)
    _streams.append(own)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _streams.remove(own)
        if before is not None:
            flush_c_output()
            os.dup2(before, 1)
        try:
            own.flush() if own is shown else own.close()
        finally:
            if before is not None:
                os.close(before)
