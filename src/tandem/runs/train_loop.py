"""Running a loop to its end, in all cases. Used by the trainer API and the agent API."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tandem.errors import EnvironmentFault, WorkerError, note
from tandem.learning.collect.evaluation import EvaluationStopped
from tandem.learning.events import BatchEnd, Event, TrainBegin, TrainEnd
from tandem.runs import callbacks as calls
from tandem.runs.callbacks import Callback
from tandem.runs.signals import Signals


class TrainLoop:
    """Passes the events of a loop to callbacks and observers, and ends it with everything saved on
    `stop`, a signal, or a lost worker process. It closes nothing.

    observers: called in order, after the callbacks; their methods have the names of a `Callback`'s.
    The events that an observer yields are handled before it continues. If iteration stops at a
    BatchEnd, the first observer handles it at once, the others in the next session. save: writes
    the latest state and yields the resulting events.
    """

    def __init__(
        self,
        loop: Any,
        observers: Sequence[object] = (),
        callbacks: Sequence[Callback] = (),
        save: Callable[[], Iterable[Event]] = tuple,
    ) -> None:
        self.loop, self.callbacks, self.save = loop, callbacks, save
        self.reason: str | None = None  # why this session ends at the next block
        self.signal: str | None = None  # the name of the received signal
        self.stops = 0  # number of stop requests
        self.catch_signals = True  # SIGINT, SIGTERM and SIGHUP end the session
        self.pending = False  # the next session starts with the observers of the latest BatchEnd
        self.saves_when_left = True
        # the consumer has stopped iterating; signals are being caught
        self._left = self._catching = False
        self.observers: dict[type[Event], list[Callable[[Event], Iterable[Event] | None]]] = {
            kind: [getattr(o, method) for o in observers if hasattr(o, method)]
            for kind, method in calls.METHODS.items()
        }

    def events(self, stop_at: int | None = None) -> Generator[Event]:
        """Yield events until `stop_at` environment steps or the end of the run. If the caller stops
        early, as with `break`, the current block is finished without events and saved."""
        self._left = False
        source = self._events(stop_at)
        with self.catching(), calls.entered(self.callbacks):
            try:
                for event in source:  # noqa: UP028  `yield from` would also close the source
                    yield event
            except GeneratorExit:
                self._left = True
                if self.saves_when_left:
                    deque(source, 0)
                raise

    def stop(self, reason: str = "callback") -> None:
        """End the session after the current block, with a checkpoint; end an evaluation at once."""
        self.reason = self.reason or reason
        self.stops += 1

    def ends(self) -> bool:
        """Return True if the session must end immediately; called between the steps of an
        evaluation."""
        if self.reason is None and (reason := calls.expired(self.callbacks)):
            self.stop(reason)
        return self.reason is not None

    @contextmanager
    def catching(self) -> Iterator[None]:
        """Let signals (see `Signals`) end the session in this context, unless `catch_signals` is
        False."""
        if self._catching or not self.catch_signals:
            yield
            return
        self._catching = True
        try:
            with Signals(self.take_signal):
                yield
        finally:
            self._catching = False

    def take_signal(self, name: str) -> None:
        """Request the end of the session because of this signal."""
        self.signal = self.signal or name
        self.stop(name)
        if self.loop.algorithm.backend.compiles:
            note(f"{name} ends the run once updates are compiled; another one ends it at once.")
        self.loop.collector.request_stop()

    def _events(self, stop_at: int | None) -> Iterator[Event]:
        """Yield the events of the loop; see `events`."""
        try:
            for event in self.loop.events(stop_at):
                yield from self._pass(event)
                if self.pending and isinstance(event, TrainBegin) and not self._left:
                    self.pending = False
                    yield from self._observe(BatchEnd(**self.loop.now(), metrics={}))
                if self._left and not self.loop.unlearned:
                    if not isinstance(event, TrainEnd):
                        yield from self.save()
                    return
                if self.reason and isinstance(event, BatchEnd):
                    yield from self._pass(TrainEnd(**self.loop.now(), reason=self.reason))
                    return
        except EnvironmentFault:
            if self.signal is None or not self.loop.breaks_by_signals:
                raise
            yield from self._pass(TrainEnd(**self.loop.now(), reason=self.signal))
        except WorkerError:
            if self.loop.unlearned:  # the latest checkpoint precedes this block
                raise
            if self.reason:  # it was ending anyway
                yield from self._pass(TrainEnd(**self.loop.now(), reason=self.reason))
                return
            for event in self.save():
                yield from self._pass(event)
            raise

    def _pass(self, event: Event) -> Iterator[Event]:
        """Call the callbacks, yield the event, then call the observers. At TrainEnd the observers
        come first, so that callbacks find all files of the run."""
        ends = isinstance(event, TrainEnd)
        if ends:
            yield from self._observe(event)
        reason = "" if self._left else calls.dispatch(event, self.callbacks)
        if reason and not ends:
            self.stop(reason)
        yield event
        if not ends:
            yield from self._observe(event)

    def _observe(self, event: Event) -> Iterator[Event]:
        waits = self._left and isinstance(event, BatchEnd)  # until the next session
        observers = self.observers[type(event)]
        for act in observers[:1] if waits else observers:
            try:
                for followed in act(event) or ():
                    yield from self._pass(followed)
            except EvaluationStopped:
                if isinstance(event, BatchEnd):  # the next session starts with it
                    self.pending = True
                    return
        self.pending |= waits
