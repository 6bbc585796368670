"""A process that works for this one: started, asked, watched, ended."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

from tandem.errors import SettingError
from tandem.platforms import check_processes, ending, kill_tree
from tandem.settings import FOLDERS, IMPORTED, module_here
from tandem.workers.child import BYTES

SLICE = 0.25  # seconds of waiting at a time
START = 60.0  # seconds that a process has to start: importing a framework takes some
END = 5.0  # seconds that a process has to close what it made and end
# chatter of libraries, once is enough
QUIET = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "PYGAME_HIDE_SUPPORT_PROMPT": "1",
}
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
BEGIN = (
    "import json, sys; sys.path[:], folders = json.loads(sys.argv[1]); from tandem.settings "
    "import FOLDERS; FOLDERS.update(folders); from tandem.workers.child import main; "
)


class WorkerLost(Exception):
    """A process died, stood still, or what it ran raised; says how. trace: where it raised. code:
    the exit code of a process that died, as `subprocess` gives it."""

    at_start = False  # before it had answered anything

    def __init__(self, how: str, trace: str = "", code: int = 1) -> None:
        super().__init__(how)
        self.trace, self.code = trace, code


class WorkerHandle(Protocol):
    """To somebody who works for this process elsewhere: in a `Process`, or on a cluster."""

    def ask(self, name: str, *arguments: object) -> None:
        """See `Process.ask`."""

    def send_bytes(self, data: bytes = b"") -> None:
        """See `Process.send_bytes`."""

    def answer(self, patience: float | Callable[[], float], since: float | None = None) -> Any:
        """See `Process.answer`."""

    def ready(self, others: Sequence[Any], seconds: float) -> list[int]:
        """See `Process.ready`."""

    def kill(self) -> None:
        """At once; whatever it was at is lost."""

    @property
    def runs(self) -> bool:
        """Whether it is there."""

    def close(self) -> None:
        """Tells it to close what it made and to end, as soon as it is not at work."""

    def end(self, patience: float = END) -> None:
        """Closes it, waits up to `patience` seconds, then kills it."""


class Process:
    """Makes `make(*arguments)` in a process of its own, with one thread for each library, and calls
    its methods there, one at a time. inherits: file descriptors to pass on. grace: seconds
    from SIGTERM to SIGKILL after its parent has ended; 0: SIGKILL at once."""

    def __init__(
        self,
        inherits: tuple[int, ...],
        make: Callable[..., object],
        *arguments: object,
        grace: float = 0.0,
    ) -> None:
        check_processes()
        # Linux ends a process with the thread that started it; only of the main one it is sure that
        # it lasts.
        tied = threading.current_thread() is threading.main_thread()
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = _started(
                f"main({theirs.fileno()}, {os.getpid()}, {tied}, {grace})",
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), *inherits),
            )
        self._connection = Connection(ours.detach())
        self._finalize = weakref.finalize(self, _end, self._process, self._connection)
        self.ask("begin", *begun(make), *arguments)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def ask(self, name: str, *arguments: object) -> None:
        """Begins a call, after those that were begun before; `answer` gives what they came to, one
        after the other. SettingError for arguments that cannot travel."""
        import cloudpickle

        try:
            request = cloudpickle.dumps((name, arguments))
        except Exception as error:  # as many kinds as there are objects
            raise not_picklable(error) from error
        with contextlib.suppress(OSError):  # then it is `answer` that finds out why
            self._connection.send_bytes(request)

    def send_bytes(self, data: bytes = b"") -> None:
        """Begins a call of its method `on_bytes`, from bytes to bytes, which is quicker."""
        with contextlib.suppress(OSError):
            self._connection.send_bytes(BYTES + data)

    def answer(self, patience: float | Callable[[], float], since: float | None = None) -> Any:
        """What the call gave. WorkerLost where the process died, raised, or stands still for
        `patience` seconds from now on, or from `since` on (time.monotonic()), after which it is no
        more; a function may shorten them meanwhile."""
        import cloudpickle

        limit = patience if callable(patience) else lambda: patience
        began = time.monotonic() if since is None else since
        try:
            while not self._connection.poll(
                max(0.0, min(SLICE, limit() - time.monotonic() + began))
            ):
                if time.monotonic() - began >= limit():
                    self.kill()
                    raise WorkerLost(f"did not respond for {limit():g} s")
            reply = self._connection.recv_bytes()
        except (EOFError, OSError):
            self._process.wait()
            self.kill()  # what it started
            code = self._process.returncode
            raise WorkerLost(ending(code), code=code) from None
        if reply[:1] == BYTES:
            return reply[1:]
        return result(self, cloudpickle.loads(reply))

    def ready(self, others: Sequence[Any], seconds: float) -> list[int]:
        """Which of these, itself among them, have an answer or are no more, as soon as one has, or
        after so many seconds."""
        readable = wait([line._connection for line in others], seconds)
        return [i for i, line in enumerate(others) if line._connection in readable]

    def terminate(self) -> None:
        """It leaves what it is at, where it can be told, closes what it made, and ends."""
        self._process.terminate()

    def kill(self) -> None:
        """At once, with the processes that it started."""
        if self._finalize.detach():
            kill_tree(self._process)

    def close(self) -> None:
        """See `WorkerHandle.close`."""
        _hang_up(self._connection)

    def end(self, patience: float = END) -> None:
        """See `WorkerHandle.end`."""
        if self._finalize.detach():
            _end(self._process, self._connection, patience)


def begun(make: Callable[..., object]) -> tuple[Callable[..., object], *tuple[object, ...]]:
    """What makes something elsewhere as `make` does, in a process that has imported what this one
    was told to: ids are registered there too. Its first arguments follow it."""
    return (_importing, tuple(IMPORTED), make) if IMPORTED else (make,)


def _importing(modules: tuple[str, ...], make: Callable[..., object], *arguments: object) -> object:
    for name in modules:
        module_here(name)
    return make(*arguments)


def _started(begin: str, **how: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-P", "-c", f"{BEGIN}{begin}", json.dumps([sys.path, [*FOLDERS]])],
        stdout=2,  # what environments print is not the run's output
        process_group=0,  # of its own, with what environments start, see `kill_tree`
        env={**QUIET, **dict.fromkeys(THREADS, "1"), **os.environ},
        **how,
    )


def result(line: WorkerHandle, reply: tuple[Any, ...]) -> Any:
    """The result in a reply of `child.ObjectServer`. Where an exception was raised there, the
    worker is ended, and WorkerLost says so."""
    if reply[0] == "done":
        return reply[1]
    line.end()
    raise WorkerLost(f"raised {reply[1]}: {reply[2]}", reply[3])


def not_picklable(error: Exception) -> SettingError:
    """For what cannot be pickled."""
    return SettingError(
        f"an object that a worker needs cannot be pickled: {error}",
        "environments and networks that can be pickled, or functions that create them in the "
        "worker",
        "create the object in a function that is passed instead (or in the environment's reset).",
    )


def end(processes: Sequence[WorkerHandle]) -> None:
    """Ends several within the time of one."""
    for process in processes:
        process.close()
    limit = time.monotonic() + END
    for process in processes:
        process.end(max(0.0, limit - time.monotonic()))


def _hang_up(connection: Connection) -> None:
    """Its other end takes this as its end, also where a process that was forked here holds the
    link too."""
    if connection.closed:
        return
    link = socket.socket(fileno=connection.fileno())
    with contextlib.suppress(OSError):  # it has ended
        link.shutdown(socket.SHUT_RDWR)
    link.detach()
    connection.close()


def _end(process: subprocess.Popen[bytes], connection: Connection, patience: float = END) -> None:
    _hang_up(connection)
    with contextlib.suppress(subprocess.TimeoutExpired):
        if process.wait(patience) == 0:
            return
    kill_tree(process)
