"""The other end of a worker: what runs in its process. It imports no framework.

Not one of multiprocessing's processes, which import the user's script once more: this one starts
from nothing, so a script needs no guard. What it is to do comes by a pipe; classes and functions
of the script travel with it (cloudpickle)."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from multiprocessing.connection import Connection
from typing import Any

from tandem.platforms import FROM_TERMINAL, die_with_parent, parent_watch
from tandem.streams import Display

BYTES = b"\0"  # begins a message of bytes, and the answer to one; a pickle begins otherwise
LOOK = 0.5  # seconds between looks whether the parent is still there


def main(pipe: int, parent: int, tied: bool, grace: float = 0.0) -> None:
    """Serves what the first request makes, until nobody is left to ask. pipe: inherited."""
    os.set_inheritable(pipe, False)  # a process that an environment starts must not hold it open
    _die_with(parent, tied, grace)
    for number in FROM_TERMINAL:  # the parent's affair: it ends the run in good order
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _terminated)
    # an environment may print when nobody reads that any more
    sys.stdout, sys.stderr = Display(sys.stdout), Display(sys.stderr)
    served = ObjectServer()
    try:
        serve(Connection(pipe), served)
    except (EOFError, ConnectionError):  # the parent has ended it, or is gone
        code = not served.close()
    except Terminated:
        served.close()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTERM)
    sys.stdout.flush()  # what environments printed
    os._exit(code)


class Terminated(BaseException):
    """SIGTERM came."""


def _terminated(number: int, frame: object) -> None:
    raise Terminated


class ObjectServer:
    """An object that is made, and asked, from elsewhere."""

    def __init__(self) -> None:
        self.object: Any = None

    def reply(self, name: str, *arguments: Any) -> tuple[Any, ...]:
        """What a method of it gives: ("done", result), or ("raised", type, message, traceback).
        "begin" makes it."""
        try:
            if name == "begin":
                make, *arguments = arguments  # type: ignore[assignment]
                self.object = make(*arguments)
                return "done", None
            return "done", getattr(self.object, name)(*arguments)
        except Terminated:
            raise
        except BaseException as error:  # whatever an environment comes up with
            return "raised", type(error).__name__, str(error), traceback.format_exc()

    def close(self) -> bool:
        """Closes the object, if it has something to close; whether that went well."""
        try:
            getattr(self.object, "close", lambda: None)()
        except BaseException:
            traceback.print_exc()
            return False
        return True


def serve(connection: Connection, served: ObjectServer) -> None:
    """Requests are (name of a method, arguments), replies as `ObjectServer` gives them. Bytes alone
    go to `on_bytes`, which answers in bytes."""
    import cloudpickle

    while True:
        request = connection.recv_bytes()
        if request[:1] == BYTES:
            reply = served.reply("on_bytes", request[1:])
            connection.send_bytes(
                BYTES + reply[1] if reply[0] == "done" else cloudpickle.dumps(reply)
            )
            continue
        try:
            name, arguments = cloudpickle.loads(request)
            answer = cloudpickle.dumps(served.reply(name, *arguments))
        except Terminated:
            raise
        except BaseException as error:  # what does not travel
            answer = cloudpickle.dumps(
                ("raised", type(error).__name__, str(error), traceback.format_exc())
            )
        connection.send_bytes(answer)


def _die_with(parent: int, tied: bool, grace: float) -> None:
    """This process ends when its parent does: at once on Linux, even where an environment's C code
    never comes back; elsewhere as soon as Python runs again. grace: see `Process`."""
    if tied and not grace:
        die_with_parent()
    threading.Thread(target=_watch, args=(parent, grace), daemon=True).start()


def _watch(parent: int, grace: float) -> None:
    is_there = parent_watch(parent)
    while is_there(LOOK):
        pass
    if grace:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(grace)
    os._exit(1)
