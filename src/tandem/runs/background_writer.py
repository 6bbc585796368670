"""Checkpoints written in the background, so that training never waits for the disk."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Generator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from tandem.errors import CheckpointError
from tandem.runs import checkpoint
from tandem.runs.checkpoint import Groups
from tandem.streams import Display
from tandem.types import JSONDict


class _Job(NamedTuple):
    path: Path
    data: JSONDict
    groups: Groups
    then: Callable[[], object] | None
    begun: Generator[None, None, None] | None  # where the replay memory is written already


class BackgroundWriter:
    """Writes checkpoints in a thread of its own. Each slot has room for one file that waits: a
    newer one takes its place, so a slow disk costs files in between (`skipped` counts them), and
    neither memory nor the newest.

    The thread lives only while there is something to write. It is no daemon: an interpreter that
    ends waits for it.
    """

    def __init__(self) -> None:
        self.skipped = 0
        self._waiting: dict[
            str, _Job
        ] = {}  # by slot, in the order in which the slots began to wait
        self._writing: _Job | None = None
        self._thread: threading.Thread | None = None  # the newest; it may have ended
        self._at_work = False  # whether it will look for what waits once more
        self._changed = threading.Condition()
        self._errors: list[
            BaseException
        ] = []  # at most one: the first that nobody has been told of
        weakref.finalize(self, _unheard, self._errors)

    def put(
        self,
        path: Path,
        data: JSONDict,
        groups: Groups,
        slot: str,
        then: Callable[[], object] | None = None,
    ) -> None:
        """Queues a checkpoint to be written. The data is copied, since the
        caller's lists grow while a file waits. The replay memory (`checkpoint.LIVE`) is written
        before this returns; other arrays must be copies. `then` is called in the thread once the
        file is whole, and must not flush. Raises, and takes nothing, where an earlier file, or the
        replay memory, could not be written."""
        with self._changed:
            self._tell()
            path, data = Path(path).absolute(), _copied(data)
            begun = None
            if checkpoint.parted(groups)[0]:
                begun = checkpoint.steps(path, data, groups)
                next(begun)
            old = self._waiting.get(slot)
            self.skipped += old is not None
            # in the old one's place: no slot starves
            self._waiting[slot] = _Job(path, data, groups, then, begun)
            self._start()
        if old is not None and old.begun is not None:
            with suppress(CheckpointError):  # its file is deleted all the same
                old.begun.close()

    def pending(self) -> set[Path]:
        """The absolute paths of the files that wait or are being written."""
        with self._changed:
            return {job.path for job in (*self._waiting.values(), self._writing) if job}

    def flush(self) -> None:
        """Waits until all is written. Raises the first error that happened: CheckpointError, or
        what `then` raised."""
        with self._changed:
            self._start()  # an interrupt inside `put` may have left a file without a thread
            while self._waiting or self._writing:
                self._changed.wait()
            self._tell()

    def close(self) -> None:
        """Does what `flush` does and lets the thread end; another `put` would begin a new one."""
        self.flush()
        if self._thread:
            self._thread.join()

    def __enter__(self) -> BackgroundWriter:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self.close()
        except Exception as late:
            if error is None:
                raise
            error.add_note(f"Saving failed as well: {late}")

    def _tell(self) -> None:
        if self._errors:
            raise self._errors.pop()

    def _start(self) -> None:
        if self._waiting and not (self._at_work and self._thread and self._thread.is_alive()):
            self._at_work = True
            # Said outright, as a thread inherits it: training itself may run in a daemon.
            self._thread = threading.Thread(target=self._run, name="tandem-writer", daemon=False)
            try:
                self._thread.start()
            except (
                RuntimeError
            ):  # no more threads here, or the interpreter is ending: better slow than lost
                self._thread = threading.current_thread()
                self._run()
                self._thread = None

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._thread is not threading.current_thread():
                    # an interrupt between this one's start and the note of it: another has taken
                    # over
                    return
                self._writing = None
                self._changed.notify_all()
                if not self._waiting:
                    self._at_work = False
                    return
                job = self._writing = self._waiting.pop(next(iter(self._waiting)))
            try:
                checkpoint.write(job.path, job.data, job.groups, job.begun)
                if job.then:
                    job.then()
            except BaseException as error:
                if not self._errors:
                    self._errors.append(error)


def _copied(data: Any) -> Any:
    """Returns JSON data with its own dicts and lists."""
    if isinstance(data, dict):
        return {key: _copied(value) for key, value in data.items()}
    return [_copied(value) for value in data] if isinstance(data, (list, tuple)) else data


def _unheard(errors: list[BaseException]) -> None:
    """Where the interpreter ends before anybody asked, nobody is left to raise it to."""
    for error in errors:
        print(f"tandem: {error}", file=Display(sys.stderr))
