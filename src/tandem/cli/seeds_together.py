"""Several compiled runs on an accelerator, all in this process: their calls are one call."""

from __future__ import annotations

import importlib
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tandem import trainer
from tandem.compiled.loop import CompiledLoop
from tandem.errors import TandemError
from tandem.learning.events import BatchEnd, EvaluationEnd
from tandem.runs.callbacks import Callback
from tandem.runs.session import Session
from tandem.runs.signals import Signals

LOOK = 0.1  # seconds between two looks at the runs


class SessionRun:
    """The run of one seed, in a thread; with what `seeds.Show` asks for."""

    def __init__(self, seed: int, session: Session) -> None:
        self.seed, self.session = seed, session
        assert session.folder is not None
        self.folder: Path = session.folder
        self.latest, self.lines = "begins", list[str]()
        self.code: int | None = None
        self.result: dict[str, Any] = {}  # what it came to
        self.error: BaseException | None = None
        self.thread: threading.Thread | None = None

    @property
    def runs(self) -> bool:
        """Whether it is under way."""
        return self.thread is not None and self.code is None

    def train(self, stop_at: int | None) -> None:
        """To its end, or where it is to stop."""
        try:
            self.result = trainer.complete(self.session, stop_at, draws=False).summary
            self.code = 0
        except BaseException as error:
            self.error, self.code = error, 1

    def look(self) -> list[str]:
        """What it had to say since the last look."""
        lines, self.lines = self.lines, []
        return lines

    @property
    def failure(self) -> str:
        """What went wrong, in words."""
        if isinstance(self.error, TandemError):
            return str(self.error)
        assert self.error is not None
        return "".join(traceback.format_exception(self.error)).rstrip()


class Tells(Callback):
    """Notes how a run is going."""

    def __init__(self) -> None:
        self.run: SessionRun | None = None

    def on_batch_end(self, event: BatchEnd) -> None:
        if self.run is not None:
            steps = self.run.session.config.settings.steps
            self.run.latest = f"{event.env_steps:,} / {steps:,} steps"

    def on_evaluation(self, event: EvaluationEnd) -> None:
        if self.run is not None:
            text = f"evaluation at {event.env_steps:,} steps: return {event.evaluation}"
            self.run.latest = text
            self.run.lines.append(text)


def is_one_call(session: Session) -> bool:
    """Whether a run's seeds are to be computed by one call: it is compiled, for an accelerator."""
    return isinstance(session.loop, CompiledLoop) and session.backend.device != "cpu"


def trained(
    seeds: list[int],
    made: Callable[[int, Callback], Session],
    first: Session,
    told: Tells,
    stop_at: int | None,
    show: Callable[[SessionRun, list[str]], None],
    runs: list[SessionRun],
) -> str:
    """Trains a run for each seed; `runs` gets them. made: the session of a seed; `first`, with its
    callback `told`, is there already. Returns the name of a signal that ended them, or ""."""
    sessions, callbacks = [first], [told]
    for seed in seeds[1:]:
        callbacks.append(Tells())
        sessions.append(made(seed, callbacks[-1]))
    group = importlib.import_module("tandem.compiled.together").Group(
        [session.loop for session in sessions]
    )
    for i, (seed, session) in enumerate(zip(seeds, sessions, strict=True)):
        run = SessionRun(seed, session)
        runs.append(run)
        callbacks[i].run = run

    def whole(i: int) -> None:
        try:
            runs[i].train(stop_at)
        finally:
            group.leave(i)

    came: list[str] = []

    def stop(name: str) -> None:
        came.append(name)
        for session in sessions:
            session.take_signal(name)

    with Signals(stop):
        for i, run in enumerate(runs):
            run.thread = threading.Thread(target=whole, args=(i,), daemon=True)
        for run in runs:
            assert run.thread is not None
            run.thread.start()
        left = list(runs)
        while left:
            for run in list(left):
                ended = not run.thread.is_alive()  # type: ignore[union-attr]
                show(run, run.look())
                if ended:
                    left.remove(run)
            time.sleep(LOOK)
    if not came:
        for run in runs:
            if run.code == 0 and run.session.config.options.plots:
                trainer.draw(run.session)
    return came[0] if came else ""
