"""Live progress in a notebook: one display that is updated in place."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from html import escape
from importlib import import_module
from typing import Any

from tandem.learning.events import Event, TrainBegin, TrainEnd
from tandem.runs.progress_line import Progress, duration

REDRAW = 0.5  # minimum seconds between two messages to a notebook
LINES = 6  # number of the latest messages shown


def progress(steps: int = 0) -> Progress:
    """Return the live progress for the current environment: a notebook, a terminal, or a file."""
    return NotebookProgress(steps) if in_notebook() else Progress(steps)


def in_notebook() -> bool:
    """Return True in a Jupyter kernel, which can display images and HTML."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel")


class Page:
    """The notebook display of a run: a progress bar, metrics and the latest messages."""

    def __init__(self) -> None:
        self.done = self.total = 0
        self.figures = ""
        self.news: deque[str] = deque(maxlen=LINES)

    def __repr__(self) -> str:
        return "\n".join([*([self.figures] if self.figures else []), *self.news])

    def _repr_html_(self) -> str:
        news = "<br>".join(map(escape, self.news))
        return (
            f"<progress value='{self.done}' max='{max(self.total, 1)}' style='width:20em'>"
            f"</progress><div>{escape(self.figures)}</div>"
            f"<div style='color:#777;font-size:90%'>{news}</div>"
        )


class NotebookProgress(Progress):
    """`Progress` in a notebook display that is updated in place. display: defaults to IPython's."""

    def __init__(self, steps: int, display: Callable[..., Any] | None = None, **more: Any) -> None:
        super().__init__(steps, **more)
        self._terminal, self._display = False, display
        self._page, self._handle = Page(), None

    _handle: Any

    def _begin(self, event: TrainBegin) -> None:
        super()._begin(event)
        display = self._display or import_module("IPython.display").display
        self._page = Page()
        self._page.done, self._page.total = event.env_steps, event.stop_at
        self._handle = display(self._page, display_id=True)

    def _end(self, event: TrainEnd) -> None:
        self._draw(event, self._clock())
        super()._end(event)

    def _maybe_draw(self, event: Event) -> None:
        now = self._clock()
        if now - self._drawn >= REDRAW:
            self._draw(event, now)

    def _show(
        self, event: Event, speed: float | None, learning: float | None, remain: float | None
    ) -> None:
        left = [] if remain is None else [f"{duration(remain)} left"]
        self._page.done = min(event.env_steps, self.stop_at)
        self._page.figures = " · ".join(
            [
                f"{event.env_steps:,} / {self.stop_at:,} steps",
                *self._details(speed, learning),
                *left,
            ]
        )
        self._update()

    def _say(self, text: str, style: str) -> None:
        self._page.news.append(text)
        self._update()

    def _update(self) -> None:
        if self._handle is not None:
            self._handle.update(self._page)
