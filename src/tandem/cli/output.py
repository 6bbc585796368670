"""The stdout of commands, reserved for their results. Output of environments and libraries, also
from C code and other processes, goes to stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from io import TextIOWrapper
from typing import Any

from tandem.platforms import flush_c_output
from tandem.streams import Display

_streams: list[tuple[Display, str]] = []  # of running commands, with initial folders


def stream() -> Any:
    """Return the stdout of the command, which raises an error if its reader has closed."""
    return _streams[-1][0] if _streams else sys.stdout


def echo(*objects: object, **options: Any) -> None:
    """Print to the stdout of the command."""
    print(*objects, file=stream(), **options)


def console(file: Any = None) -> Any:
    """Return a Rich console for the stdout of the command, which also raises if its reader has
    closed."""
    from tandem.terminal import CommandConsole  # imports Rich, which plain lines do not need

    return CommandConsole(file=file or stream(), highlight=False)


def table(
    rows: Iterable[Sequence[str]], header: Sequence[str] = (), widths: Sequence[int] = ()
) -> None:
    """Print rows in columns, as wide as the terminal; longer cells are wrapped. header: names of
    the columns. widths: minimum widths of the first columns, to align several tables."""
    from tandem.terminal import columns  # imports Rich

    screen = console()
    if not screen.is_terminal and "COLUMNS" not in os.environ:
        screen.width = 1000  # keep lines whole for grep
    screen.print(columns(rows, header, widths))


def say(text: str) -> None:
    """Print an optional line to the stdout of the command; a closed reader is ignored."""
    print(text, file=Display(stream()), flush=True)


def shown(path: Any) -> str:
    """Return a path relative to the initial working directory of the command."""
    began = _streams[-1][1] if _streams else os.getcwd()
    return str(path).removeprefix(os.path.join(began, ""))


@contextmanager
def reserved() -> Iterator[None]:
    """Redirect descriptor 1 and `sys.stdout` to stderr in this context; `stream` returns the
    original stdout."""
    own = stdout = sys.stdout
    before = os.dup(1)
    if isinstance(stdout, TextIOWrapper) and stdout is sys.__stdout__:
        stdout.flush()
        lines = 1 if stdout.isatty() else -1
        own = os.fdopen(before, "w", lines, stdout.encoding, stdout.errors, closefd=False)
    os.dup2(2, 1)
    _streams.append((Display(own, (BrokenPipeError,)), os.getcwd()))
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        stream().end()
        _streams.pop()
        flush_c_output()
        os.dup2(before, 1)
        if own is not stdout:
            own.close()
        os.close(before)
