"""Worker processes: starting, calling, monitoring and ending them."""

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

SLICE = 0.25  # seconds per wait
START = 60.0  # seconds for a process to start, including the import of a framework
END = 5.0  # seconds for a process to close its object and end
# suppress messages of libraries
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
    """Error for a process that died, did not respond, or whose code raised; the message gives the
    reason. trace: the traceback of its exception. code: the exit code of a process that died, as in
    `subprocess`."""

    at_start = False  # before its first reply

    def __init__(self, how: str, trace: str = "", code: int = 1) -> None:
        super().__init__(how)
        self.trace, self.code = trace, code


class WorkerHandle(Protocol):
    """Interface of a worker in a `Process` or on a cluster."""

    def ask(self, name: str, *arguments: object) -> None:
        """See `Process.ask`."""

    def send_bytes(self, data: bytes = b"") -> None:
        """See `Process.send_bytes`."""

    def answer(self, patience: float | Callable[[], float], since: float | None = None) -> Any:
        """See `Process.answer`."""

    def ready(self, others: Sequence[Any], seconds: float) -> list[int]:
        """See `Process.ready`."""

    def kill(self) -> None:
        """Kill it immediately; its current work is lost."""

    @property
    def runs(self) -> bool:
        """True if it is running."""

    def close(self) -> None:
        """Tell it to close its object and end once it is idle."""

    def end(self, patience: float = END) -> None:
        """Close it, wait up to `patience` seconds, then kill it."""


class Process:
    """Process that creates `make(*arguments)`, with one thread per library, and calls its methods,
    one at a time. inherits: file descriptors to pass on. grace: seconds from SIGTERM to SIGKILL
    after its parent has ended; 0: SIGKILL immediately."""

    def __init__(
        self,
        inherits: tuple[int, ...],
        make: Callable[..., object],
        *arguments: object,
        grace: float = 0.0,
    ) -> None:
        check_processes()
        # Linux ends a process with the thread that started it, and only the main thread is sure to
        # last.
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
        """Start a call after those already started; `answer` returns their results in order. Raises
        SettingError for arguments that cannot be pickled."""
        import cloudpickle

        try:
            request = cloudpickle.dumps((name, arguments))
        except Exception as error:  # pickling can raise any type
            raise not_picklable(error) from error
        with contextlib.suppress(OSError):  # `answer` reports the reason
            self._connection.send_bytes(request)

    def send_bytes(self, data: bytes = b"") -> None:
        """Start a call of its method `on_bytes`, from bytes to bytes, which is faster."""
        with contextlib.suppress(OSError):
            self._connection.send_bytes(BYTES + data)

    def answer(self, patience: float | Callable[[], float], since: float | None = None) -> Any:
        """Return the result of a call. Raises WorkerLost if the process died or raised, or if it
        does not respond for `patience` seconds from now, or from `since` on (time.monotonic()); it
        is then killed. A function can shorten the time meanwhile."""
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
            self.kill()  # the processes that it started
            code = self._process.returncode
            raise WorkerLost(ending(code), code=code) from None
        if reply[:1] == BYTES:
            return reply[1:]
        return result(self, cloudpickle.loads(reply))

    def ready(self, others: Sequence[Any], seconds: float) -> list[int]:
        """Return the indices of those among these workers, including itself, that have a reply or
        have ended, as soon as there is one, or after this many seconds."""
        readable = wait([line._connection for line in others], seconds)
        return [i for i, line in enumerate(others) if line._connection in readable]

    def terminate(self) -> None:
        """Interrupt its work if possible, then let it close its object and end."""
        self._process.terminate()

    def kill(self) -> None:
        """Kill it immediately, with the processes that it started."""
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
    """Return a function, and its first arguments, that calls `make` in another process after
    importing the modules that this process was told to import, since they register ids."""
    return (_importing, tuple(IMPORTED), make) if IMPORTED else (make,)


def _importing(modules: tuple[str, ...], make: Callable[..., object], *arguments: object) -> object:
    for name in modules:
        module_here(name)
    return make(*arguments)


def _started(begin: str, **how: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-P", "-c", f"{BEGIN}{begin}", json.dumps([sys.path, [*FOLDERS]])],
        stdout=2,  # output of environments is not part of the run's output
        process_group=0,  # includes processes that environments start, see `kill_tree`
        env={**QUIET, **dict.fromkeys(THREADS, "1"), **os.environ},
        **how,
    )


def result(line: WorkerHandle, reply: tuple[Any, ...]) -> Any:
    """Return the result in a reply of `child.ObjectServer`. If the worker raised an exception, end
    it and raise WorkerLost."""
    if reply[0] == "done":
        return reply[1]
    line.end()
    raise WorkerLost(f"raised {reply[1]}: {reply[2]}", reply[3])


def not_picklable(error: Exception) -> SettingError:
    """Return the error for an object that cannot be pickled."""
    return SettingError(
        f"an object that a worker needs cannot be pickled: {error}",
        "environments and networks that can be pickled, or functions that create them in the "
        "worker",
        "create the object in a function that is passed instead (or in the environment's reset).",
    )


def end(processes: Sequence[WorkerHandle]) -> None:
    """End several workers at once, within the time limit of one."""
    for process in processes:
        process.close()
    limit = time.monotonic() + END
    for process in processes:
        process.end(max(0.0, limit - time.monotonic()))


def _hang_up(connection: Connection) -> None:
    """Close a connection so that its other end sees the end, even if a forked process also holds
    it."""
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
