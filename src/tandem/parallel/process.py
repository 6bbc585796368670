"""A process that works for this one: started, asked, watched, ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

from tandem.errors import EngineError, SettingError
from tandem.parallel.child import BYTES

SLICE = 0.25  # seconds of waiting at a time
END = 1.0  # seconds that a process has to end by itself
# chatter of libraries, once is enough
QUIET = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "PYGAME_HIDE_SUPPORT_PROMPT": "1",
}
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
BEGIN = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from tandem.parallel.child "
    "import main; "
)


class WorkerLost(Exception):
    """A process died, stood still, or what it ran raised; says how, and `trace` where."""

    def __init__(self, how: str, trace: str = "") -> None:
        super().__init__(how)
        self.trace = trace


class WorkerHandle(Protocol):
    """To somebody who works for this process elsewhere: in a `Process`, or on a cluster."""

    def ask(self, name: str, *arguments: Any) -> None:
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
        """It ends when it is not at work."""

    def end(self) -> None:
        """Waits for that, and kills it where it takes too long."""


class Process:
    """Makes `make(*arguments)` in a process of its own, with one thread for each library, and calls
    its methods there, one at a time. inherits: file descriptors to pass on."""

    def __init__(self, inherits: tuple[int, ...], make: Any, *arguments: Any) -> None:
        if os.name != "posix":
            raise EngineError(
                "workers were asked for.", "a POSIX system, for now", "train with workers=0."
            )
        ours, theirs = socket.socketpair()
        # Linux ends a process with the thread that started it; only of the main one it is sure that
        # it lasts.
        tied = threading.current_thread() is threading.main_thread()
        begin = f"{BEGIN}main({theirs.fileno()}, {os.getpid()}, {tied})"
        self._process = subprocess.Popen(
            [sys.executable, "-c", begin, json.dumps(sys.path)],
            stdin=subprocess.DEVNULL,
            stdout=2,  # what environments print is not the run's output
            pass_fds=(theirs.fileno(), *inherits),
            env={**QUIET, **dict.fromkeys(THREADS, "1"), **os.environ},
        )
        theirs.close()
        self._connection = Connection(ours.detach())
        self._finalize = weakref.finalize(self, _end, self._process, self._connection)
        self.ask("begin", make, *arguments)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def ask(self, name: str, *arguments: Any) -> None:
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
                    raise WorkerLost(f"stood still for {limit():g} s")
            reply = self._connection.recv_bytes()
        except (EOFError, OSError):
            self._process.wait()
            raise WorkerLost(_how(self._process.returncode)) from None
        if reply[:1] == BYTES:
            return reply[1:]
        return result(self, cloudpickle.loads(reply))

    def ready(self, others: Sequence[Any], seconds: float) -> list[int]:
        """Which of these, itself among them, have an answer or are no more, as soon as one has, or
        after so many seconds."""
        readable = wait([line._connection for line in others], seconds)
        return [i for i, line in enumerate(others) if line._connection in readable]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """It ends when it is not at work."""
        self._connection.close()

    def end(self) -> None:
        """Waits for that, and kills it where it takes too long."""
        self._finalize()


def result(line: WorkerHandle, reply: tuple[Any, ...]) -> Any:
    """The result in a reply of `child.ObjectServer`. Where an exception was raised there, the
    worker is killed, and WorkerLost says so."""
    if reply[0] == "done":
        return reply[1]
    line.kill()
    raise WorkerLost(f"raised {reply[1]}: {reply[2]}", reply[3])


def not_picklable(error: Exception) -> SettingError:
    """For what cannot be pickled."""
    return SettingError(
        f"something that a worker needs cannot go to another process: {error}",
        "environments and networks that can be pickled, or functions that make them there",
        "make what cannot be pickled in a function that is given instead (an environment's: in "
        "its reset).",
    )


def end(processes: Sequence[WorkerHandle], patience: float = END) -> None:
    """Ends several within the time of one, which has `patience` seconds to end by itself."""
    for process in processes:
        process.close()
    limit = time.monotonic() + patience
    while any(p.runs for p in processes) and time.monotonic() < limit:
        time.sleep(0.005)
    for process in processes:
        if process.runs:
            process.kill()
        process.end()


def _end(process: subprocess.Popen[bytes], connection: Connection) -> None:
    connection.close()  # it takes this as its end, when it is not at work
    try:
        process.wait(END)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _how(code: int) -> str:
    if code >= 0:
        return f"ended by itself, with exit code {code}"
    if -code == signal.SIGKILL:
        return "was killed (SIGKILL), by somebody or for want of memory"
    return f"died of {signal.Signals(-code).name}"
