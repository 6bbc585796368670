"""Code that runs in a worker's process. It imports no framework.

Unlike multiprocessing's processes, which import the user's script again, this process starts from
scratch, so a script needs no guard. Requests come through a pipe; classes and functions of the
script are sent with them (cloudpickle).
"""

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

BYTES = b"\0"  # prefix of a message of bytes and of its reply; no pickle begins with it
LOOK = 0.5  # seconds between checks of the parent


def main(pipe: int, parent: int, tied: bool, grace: float = 0.0) -> None:
    """Create an object by the first request and serve it until the connection ends. pipe: inherited
    file descriptor."""
    os.set_inheritable(pipe, False)  # a process that an environment starts must not keep it open
    _die_with(parent, tied, grace)
    for number in FROM_TERMINAL:  # the parent handles them and ends the run in good order
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _terminated)
    # an environment may print after the streams' readers have ended
    sys.stdout, sys.stderr = Display(sys.stdout), Display(sys.stderr)
    served = ObjectServer()
    try:
        serve(Connection(pipe), served)
    except (EOFError, ConnectionError):  # the parent has closed it or ended
        code = not served.close()
    except Terminated:
        served.close()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTERM)
    sys.stdout.flush()  # output of environments
    os._exit(code)


class Terminated(BaseException):
    """Raised on SIGTERM."""


def _terminated(number: int, frame: object) -> None:
    raise Terminated


class ObjectServer:
    """An object that is created and called from another process."""

    def __init__(self) -> None:
        self.object: Any = None

    def reply(self, name: str, *arguments: Any) -> tuple[Any, ...]:
        """Call a method and return ("done", result) or ("raised", type, message, traceback).
        "begin" creates the object."""
        try:
            if name == "begin":
                make, *arguments = arguments  # type: ignore[assignment]
                self.object = make(*arguments)
                return "done", None
            return "done", getattr(self.object, name)(*arguments)
        except Terminated:
            raise
        except BaseException as error:  # environments can raise anything
            return "raised", type(error).__name__, str(error), traceback.format_exc()

    def close(self) -> bool:
        """Close the object if it has a close method; return whether that succeeded."""
        try:
            getattr(self.object, "close", lambda: None)()
        except BaseException:
            traceback.print_exc()
            return False
        return True


def serve(connection: Connection, served: ObjectServer) -> None:
    """Serve requests (method name, arguments) with the replies of `ObjectServer`. Bytes alone go to
    `on_bytes`, which also returns bytes."""
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
        except BaseException as error:  # not picklable
            answer = cloudpickle.dumps(
                ("raised", type(error).__name__, str(error), traceback.format_exc())
            )
        connection.send_bytes(answer)


def _die_with(parent: int, tied: bool, grace: float) -> None:
    """End this process when its parent ends: on Linux immediately, even if an environment's C code
    never returns; elsewhere as soon as Python runs again. grace: see `Process`."""
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
