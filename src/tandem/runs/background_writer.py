"""A thread that writes the checkpoints of agents (`rotation.py`) while they train. Training waits
only for the replay buffer to be written."""

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
    begun: Generator[None, None, None] | None  # if the replay buffer is already written


class BackgroundWriter:
    """Writer of checkpoints in a separate thread. Each slot holds one waiting file, which a newer
    one replaces: a slow disk skips intermediate files (`skipped` counts them), but costs no memory
    and never loses the newest.

    The thread lives only while there is something to write. It is not a daemon: the interpreter
    waits for it at exit.
    """

    def __init__(self) -> None:
        self.skipped = 0
        self._waiting: dict[str, _Job] = {}  # by slot, longest waiting first
        self._writing: _Job | None = None
        self._thread: threading.Thread | None = None  # the newest one; it may have ended
        self._at_work = False  # the thread will check for waiting jobs again
        self._changed = threading.Condition()
        self._errors: list[BaseException] = []  # at most one: the first that was not yet raised
        weakref.finalize(self, _unheard, self._errors)

    def put(
        self,
        path: Path,
        data: JSONDict,
        groups: Groups,
        slot: str,
        then: Callable[[], object] | None = None,
    ) -> None:
        """Queue a checkpoint. `data` is copied, since the caller's lists grow while a file waits.
        The replay buffer (`checkpoint.LIVE`) is written before this returns; other arrays must be
        copies. `then` is called in the thread once the file is complete, and must not flush.
        Raises, and queues nothing, if an earlier file or the replay buffer could not be written."""
        with self._changed:
            self._tell()
            path, data = Path(path).absolute(), _copied(data)
            begun = None
            if checkpoint.parted(groups)[0]:
                begun = checkpoint.write_steps(path, data, groups)
                next(begun)
            old = self._waiting.get(slot)
            self.skipped += old is not None
            # keeps the old job's position, so no slot starves
            self._waiting[slot] = _Job(path, data, groups, then, begun)
            self._start()
        if old is not None and old.begun is not None:
            with suppress(CheckpointError):  # its file is deleted anyway
                old.begun.close()

    def pending(self) -> set[Path]:
        """Return the absolute paths of the files that wait or are being written."""
        with self._changed:
            return {job.path for job in (*self._waiting.values(), self._writing) if job}

    def flush(self) -> None:
        """Wait until everything is written. Raises the first error: CheckpointError, or the error
        raised by `then`."""
        with self._changed:
            self._start()  # an interrupt in `put` may have left a file without a thread
            while self._waiting or self._writing:
                self._changed.wait()
            self._tell()

    def close(self) -> None:
        """Flush and end the thread; a later `put` starts a new one."""
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
            # `daemon` is explicit, since it is inherited: training itself may run in a daemon
            # thread
            self._thread = threading.Thread(target=self._run, name="tandem-writer", daemon=False)
            try:
                self._thread.start()
            except RuntimeError:  # thread limit or interpreter shutdown: write it here instead
                self._thread = threading.current_thread()
                self._run()
                self._thread = None

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._thread is not threading.current_thread():
                    # interrupted between start() and the assignment: another thread took over
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
    """Return a deep copy of JSON data."""
    if isinstance(data, dict):
        return {key: _copied(value) for key, value in data.items()}
    return [_copied(value) for value in data] if isinstance(data, (list, tuple)) else data


def _unheard(errors: list[BaseException]) -> None:
    """Print errors that nobody can catch any more because the interpreter is exiting."""
    for error in errors:
        print(f"tandem: {error}", file=Display(sys.stderr))
