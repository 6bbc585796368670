"""What is drawn in a terminal, with Rich. Imported where something is drawn: training without a
terminal needs no Rich."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text


class CommandConsole(Console):  # type: ignore[misc]
    """A console for the stdout of a command, which raises if its reader has closed."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


class LiveLines(Live):  # type: ignore[misc]
    """Lines at the bottom of a terminal that are updated, below those that are printed. redirect:
    also print what the program writes to stdout and stderr above them."""

    def __init__(self, stream: Any, redirect: bool = False) -> None:
        console = Console(file=stream, force_terminal=True)
        redirects = {"redirect_stdout": redirect, "redirect_stderr": redirect}
        super().__init__(console=console, auto_refresh=False, **redirects)

    def print(self, text: str, style: str = "") -> None:
        """Print a line above."""
        # as a Text: a style passed to print() would also color the lines below
        self.console.print(Text(text, style))

    def draw(self, text: str) -> None:
        """Draw lines, each cut at the edge of the terminal."""
        self.update(_cut(text), refresh=True)

    def draw_progress(self, done: int, total: int, counts: str, left: str, details: str) -> None:
        """Draw a bar with counts and the remaining time, and the metrics below it."""
        top = Table.grid(padding=(0, 2))
        bar = ProgressBar(total=max(total, 1), completed=done, width=32)
        top.add_row(bar, Text(counts), Text(left, style="cyan"))
        self.update(Group(top, _cut(details, "dim")), refresh=True)


def _cut(text: str, style: str = "") -> Text:
    return Text(text, style, overflow="ellipsis", no_wrap=True)


def columns(rows: Iterable[Sequence[str]], header: Sequence[str], widths: Sequence[int]) -> Table:
    """Return rows in columns; longer cells are wrapped. widths: minimum ones, of the first."""
    shown = Table(box=None, pad_edge=False, show_header=bool(header), padding=(0, 2, 0, 0))
    cells = [[Text(cell) for cell in row] for row in rows]
    for i in range(max(map(len, [header, *cells]))):
        width = widths[i] if i < len(widths) else None
        shown.add_column(header[i] if i < len(header) else "", min_width=width, overflow="fold")
    for row in cells:
        shown.add_row(*row)
    return shown
