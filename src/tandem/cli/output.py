"""What commands write to stdout: their results alone. What environments and libraries print there,
from C code and in other processes too, goes to stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from io import TextIOWrapper
from typing import Any

from tandem.platforms import flush_c_output
from tandem.streams import Display

_streams: list[tuple[Display, str]] = []  # of the commands under way, with where they began


def stream() -> Any:
    """The stdout of the command, which raises an error where its reader has gone."""
    return _streams[-1][0] if _streams else sys.stdout


def echo(*objects: object, **options: Any) -> None:
    """Prints to the stdout of the command."""
    print(*objects, file=stream(), **options)


def console(file: Any = None, **look: Any) -> Any:
    """Rich's console for the stdout of the command, which raises where its reader has gone, too."""
    from rich.console import Console  # not for commands that print plain lines

    class Raising(Console):  # type: ignore[misc]
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return Raising(file=file or stream(), highlight=False, **look)


def table(rows: Iterable[Sequence[str]], header: Sequence[str] = (), widths: Any = ()) -> None:
    """Prints rows in columns, as wide as the terminal; what does not fit is wrapped. header: what
    the columns are called. widths: of the first columns, the same in several tables."""
    from rich.table import Table
    from rich.text import Text

    screen = console()
    if not screen.is_terminal and "COLUMNS" not in os.environ:
        screen.width = 1000  # whoever searches the output wants whole lines
    shown = Table(box=None, pad_edge=False, show_header=bool(header), padding=(0, 2, 0, 0))
    rows = [[Text(cell) for cell in row] for row in rows]
    for i in range(max(map(len, [header, *rows]))):
        width = widths[i] if i < len(widths) else None
        shown.add_column(header[i] if i < len(header) else "", min_width=width, overflow="fold")
    for row in rows:
        shown.add_row(*row)
    screen.print(shown)


def say(text: str) -> None:
    """Prints a line that a command can do without, to its stdout."""
    print(text, file=Display(stream()), flush=True)


def shown(path: Any) -> str:
    """A path as seen from where the command began."""
    began = _streams[-1][1] if _streams else os.getcwd()
    return str(path).removeprefix(os.path.join(began, ""))


@contextmanager
def reserved() -> Iterator[None]:
    """Within it, descriptor 1 and `sys.stdout` are stderr, and `stream` is what stdout was."""
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
