"""Live progress of a run, drawn from its events: an updating line in a terminal, plain lines
elsewhere."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, TextIO

from tandem.learning.events import (
    BatchEnd,
    CheckpointSaved,
    EpisodeEnd,
    EvaluationEnd,
    Event,
    TrainBegin,
    TrainEnd,
)
from tandem.learning.figures import figures
from tandem.runs.callbacks import Callback
from tandem.streams import Display

REDRAW = 0.125  # minimum seconds between two updates of a terminal
LINE = 5.0  # initial seconds between two plain lines
WINDOW = 10.0  # seconds over which rates are averaged


class Progress(Callback):
    """Callback that displays the progress of a run.

    steps: the last step of the run, until its TrainBegin event gives it. quiet: write nothing.
    stream: defaults to stderr, so that stdout stays free for results; it determines whether this is
    a terminal. Handling an event takes constant time, and a terminal is updated at most eight times
    a second. TrainEnd ends the display, and so does leaving the `with` block if a run was aborted.
    """

    def __init__(
        self,
        steps: int,
        quiet: bool = False,
        *,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.stop_at, self.quiet = steps, quiet
        self._stream = Display(stream or sys.stderr)
        self._clock = clock
        self._scores: deque[float] = deque(maxlen=100)
        self._successes: deque[float] = deque(maxlen=100)
        self._loss: float | None = None
        self._shares: Mapping[str, float] = {}
        # (time, steps, updates) at recent ends of blocks, and at the latest one
        self._marks: deque[tuple[float, int, int]] = deque()
        self._latest = (0.0, 0, 0)
        self._compiles = False  # the backend has compiled since the latest mark
        self._improves = False  # there is an earlier evaluation to improve on
        self._started = self._drawn = clock()
        self._first = self._tenth = self._told = 0
        self._live: Any = None
        self._terminal = not quiet and self._stream.isatty()
        self._handlers: dict[type[Event], Callable[[Any], None]] = {
            TrainBegin: self._begin,
            EpisodeEnd: self._episode,
            BatchEnd: self._batch,
            EvaluationEnd: self._evaluation,
            CheckpointSaved: self._checkpoint,
        }

    def __call__(self, event: Event) -> None:
        if self.quiet:
            return
        handler = self._handlers.get(type(event))
        if handler is not None:
            handler(event)
        if isinstance(event, TrainEnd):
            self._end(event)
        else:
            self._maybe_draw(event)

    on_train_begin = on_train_end = on_episode_begin = on_episode_end = __call__
    on_batch_begin = on_batch_end = on_evaluation = on_checkpoint = __call__

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the terminal."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    # Event handlers

    def _begin(self, event: TrainBegin) -> None:
        self.stop_at = event.stop_at
        self._first = self._told = event.env_steps
        self._started = self._drawn = self._clock()
        self._tenth = self._tenths(event)
        self._improves = event.env_steps > 0
        self._mark_anew(event)
        if self.session is not None:
            self.session.backend.on_compile = self._compiling
        if self._terminal:
            from tandem.terminal import LiveLines  # imports Rich

            self._live = LiveLines(self._stream)
            self._live.start()

    def _episode(self, event: EpisodeEnd) -> None:
        self._scores.append(event.episode.score)
        if event.episode.success is not None:
            self._successes.append(event.episode.success)

    def _batch(self, event: BatchEnd) -> None:
        metrics = event.metrics
        name = "loss" if "loss" in metrics else next((n for n in metrics if "loss" in n), None)
        self._loss = metrics[name] if name else None
        self._shares = event.shares
        if self._compiles:  # exclude compile time from the rates
            self._mark_anew(event)
            return
        self._latest = now, *_ = self._clock(), event.env_steps, event.updates
        if now - self._marks[-1][0] >= REDRAW:
            self._marks.append(self._latest)
        while len(self._marks) > 2 and now - self._marks[0][0] > WINDOW:
            self._marks.popleft()

    def _mark_anew(self, event: Event) -> None:
        self._compiles, self._latest = False, (self._clock(), event.env_steps, event.updates)
        self._marks.clear()
        self._marks.append(self._latest)

    def _compiling(self) -> None:
        self._compiles = True
        if self._live is not None:
            self._redraw(self._latest[1], "", ["compiling …"])

    def _redraw(self, done: int, left: str, details: list[str]) -> None:
        counts = _counts(done, self.stop_at)
        self._live.draw_progress(done, self.stop_at, counts, left, " · ".join(details))

    def _evaluation(self, event: EvaluationEnd) -> None:
        e, self._told = event.evaluation, event.env_steps
        text = f"evaluation at {event.env_steps:,} steps: return {e}"
        better = event.best and not event.tie and self._improves
        self._improves = True
        self._say(text + ", the best so far" * better, "bold green" if better else "")

    def _checkpoint(self, event: CheckpointSaved) -> None:
        # checkpoints of an evaluation or at the start of training are not reported
        if event.env_steps != self._told:
            self._say(f"checkpoint at {event.env_steps:,} steps: {event.path}", "dim")

    def _end(self, event: TrainEnd) -> None:
        now = self._clock()
        if self._live is not None:
            self._draw(event, now)
        self.close()
        steps, seconds = event.env_steps - self._first, now - self._started
        ended = "" if event.reason == "steps" else f"; stopped by {event.reason}"
        self._say(f"{steps:,} steps in {duration(seconds)}, with evaluations{ended}", "bold")
        if self._shares:
            total = max(event.seconds, sum(self._shares.values()), 1e-9)
            parts = dict(self._shares) | {"other": total - sum(self._shares.values())}
            self._say(
                "time: " + ", ".join(f"{name} {s / total:.0%}" for name, s in parts.items()), ""
            )

    # Drawing

    def _maybe_draw(self, event: Event) -> None:
        now = self._clock()
        waited = now - self._drawn
        if self._live is not None:
            if waited >= REDRAW:
                self._draw(event, now)
        elif waited >= 1.0:  # rarer in long runs, but at least one line per tenth
            tenth = self._tenths(event)
            if tenth > self._tenth or waited >= max(LINE, (now - self._started) / 20):
                self._tenth = tenth
                self._draw(event, now)

    def _draw(self, event: Event, now: float) -> None:
        self._drawn, speed, learning, remain = now, None, None, None
        (then, steps, updates), (at, done, made) = self._marks[0], self._latest
        if at > then:  # at least one block is complete
            speed, learning = (done - steps) / (at - then), (made - updates) / (at - then)
            if speed > 0:
                remain = max(0.0, (self.stop_at - done) / speed - (now - at))
        self._show(event, speed, learning, remain)

    def _show(
        self, event: Event, speed: float | None, learning: float | None, remain: float | None
    ) -> None:
        """Show the steps and updates per second and the remaining seconds; None: unknown."""
        left = "" if remain is None else f"{duration(remain)} left"
        details = self._details(speed, learning)
        if self._live is not None:
            self._redraw(event.env_steps, left, details)
        else:
            share = min(1.0, event.env_steps / max(self.stop_at, 1))
            counts = _counts(event.env_steps, self.stop_at)
            parts = [f"{counts} ({share:.0%})", *details, left]
            self._say(" | ".join(filter(None, parts)), "")

    def _details(self, speed: float | None, learning: float | None) -> list[str]:
        """Return the current metrics as short texts."""
        details = list[str]()
        if speed is not None:
            details += [f"{speed:,.0f} steps/s", f"{learning:,.0f} updates/s"]
        if self._scores:
            details.append(f"return {figures(sum(self._scores) / len(self._scores))}")
        if self._successes:
            details.append(f"success {sum(self._successes) / len(self._successes):.0%}")
        if self._loss is not None:
            details.append(f"loss {self._loss:.4g}")
        return details

    def _tenths(self, event: Event) -> int:
        return 10 * event.env_steps // max(self.stop_at, 1)

    def _say(self, text: str, style: str) -> None:
        if self._live is not None:
            self._live.print(text, style)
        else:
            print(text, file=self._stream, flush=True)


def _counts(done: int, total: int) -> str:
    return f"{done:,} / {total:,} steps"


def duration(seconds: float) -> str:
    """Return a duration as readable text: "0.4 s", "12 s", "3:05", "2:03:04"."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{rest // 60}:{rest % 60:02}"
