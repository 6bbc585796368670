"""Between processes that were started together, on one machine or several: the first, which has the
run, tells the others what to do, and each of them shows every second that it is there. Over TCP:
torch has such links itself (`backends.torch_group`)."""

from __future__ import annotations

import hmac
import os
import queue
import secrets
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from tandem.backends.messages import Message, read
from tandem.errors import WorkerError
from tandem.parallel.process import SLICE
from tandem.types import AnyArray, Tree

BEAT = 1.0  # seconds between two signs of life
GRACE = 3.0  # seconds in which what became of the others is known
SIZES = struct.Struct("<QQ")  # before a message: of its header, and of its arrays
GREETING = struct.Struct("<16sIB")  # token, rank, which link
SAID = struct.Struct("<IB")  # length of a text, and whether another process is to blame
CALLS, LIFE = range(2)
RAISED, LOST = range(2)


class Gone(Exception):
    """The process at the other end has closed its link."""


def _received(link: socket.socket, size: int) -> AnyArray:
    data, at = np.empty(size, np.uint8), 0
    while at < size:
        if not (count := link.recv_into(data[at:].data)):
            raise Gone
        at += count
    return data


class _Other:
    """What the first process knows of another one."""

    def __init__(self) -> None:
        self.links: dict[int, socket.socket] = {}
        self.heard = time.monotonic()  # its latest sign of life
        self.gone = False
        self.said: list[tuple[int, str]] = []  # RAISED or LOST, and the traceback
        self._data = bytearray()

    def hear(self) -> None:
        """Takes in what has come."""
        try:
            data = self.links[LIFE].recv(2**16)
        except OSError:
            data = b""
        if not data:
            self.gone = True
            return
        self.heard = time.monotonic()
        self._data += data
        while len(self._data) >= SAID.size:
            length, kind = SAID.unpack_from(self._data)
            if len(self._data) < SAID.size + length:
                return
            if length:
                text = self._data[SAID.size : SAID.size + length].decode()
                self.said.append((kind, text))
            del self._data[: SAID.size + length]


class Lead:
    """The first of `count` processes. `numbers` say how the others find it, once they know its
    machine; `accept` waits for them. loopback: they are on this machine, and no other is to reach
    it.

    `during` makes a call that needs all of them: where one raises, dies, or shows no sign of life
    for `patience` seconds, it raises a WorkerError that names it."""

    def __init__(self, count: int, loopback: bool, patience: float) -> None:
        self.count, self.patience = count, patience
        self.broken = False  # whether the links are cut: then nothing waits for the others
        self._token = secrets.token_bytes(16)
        if loopback or not socket.has_dualstack_ipv6():
            self._server = socket.create_server(("127.0.0.1" if loopback else "", 0))
        else:
            self._server = socket.create_server(
                ("", 0), family=socket.AF_INET6, dualstack_ipv6=True
            )
        self._others = {rank: _Other() for rank in range(1, count)}
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._error_of_call: BaseException | None = None
        self._done, self._wake = socket.socketpair()
        # a call may never come back: this thread watches, and that one makes it
        threading.Thread(target=self._work, daemon=True).start()

    @property
    def numbers(self) -> AnyArray:
        """int32 [5]: the port and a secret."""
        port = self._server.getsockname()[1]
        return np.concatenate([np.array([port], np.int32), np.frombuffer(self._token, np.int32)])

    def accept(self) -> None:
        """Waits for the links of the others; WorkerError for one that does not come."""
        limit = time.monotonic() + self.patience
        while missing := [rank for rank, other in self._others.items() if len(other.links) < 2]:
            self._server.settimeout(max(0.01, limit - time.monotonic()))
            try:
                link, _ = self._server.accept()
            except TimeoutError:
                self.cut()
                raise self._error(missing[0], "has not come") from None
            if not self._welcomed(link):
                link.close()
        self._server.close()
        for other in self._others.values():
            other.heard = time.monotonic()

    def _welcomed(self, link: socket.socket) -> bool:
        with suppress(OSError, Gone):  # a stranger's
            link.settimeout(GRACE)
            token, rank, kind = GREETING.unpack(_received(link, GREETING.size).tobytes())
            if hmac.compare_digest(token, self._token):
                link.settimeout(None)
                link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._others[rank].links[kind] = link
                return True
        return False

    def send(self, verb: str, data: Any = None, arrays: Tree = ()) -> None:
        """Gives the others a message. OSError where one is gone."""
        message = Message(verb, data, arrays)
        payload = np.empty(message.size, np.uint8)
        message.fill(payload)
        head = SIZES.pack(len(message.header), message.size) + message.header
        for other in self._others.values():
            other.links[CALLS].sendall(head)
            other.links[CALLS].sendall(payload.data)

    def during(self, call: Callable[[], Any], losing: tuple[type[Exception], ...]) -> Any:
        """What `call()` gives, which the others make too. losing: exceptions that may come of the
        loss of another process."""
        box: list[Any] = []
        try:
            self._calls.put(lambda: box.append(call()))
            while not self._listened(BEAT):
                if fault := self._fault():
                    raise fault
            if box:
                return box[0]
            error = self._error_of_call
            assert error is not None
            if isinstance(error, (OSError, *losing)):
                self._raise_fault(error)
            raise error
        except BaseException:
            self.cut()
            raise

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                call()
            except BaseException as error:
                self._error_of_call = error
            with suppress(OSError):  # nobody waits any more
                self._wake.send(b"1")

    def _raise_fault(self, error: BaseException) -> None:
        """After a call that has failed: raises what became of another process, if that is it."""
        limit = time.monotonic() + GRACE
        while (left := limit - time.monotonic()) > 0:
            self._listened(min(left, BEAT))
            if fault := self._fault():
                raise fault from error
        for rank, other in self._others.items():
            if other.said:
                raise self._error(rank, f"could not go on: {other.said[0][1]}") from error

    def _listened(self, seconds: float) -> bool:
        """Hears what the others say for so long; whether the call has come back."""
        there = {o.links[LIFE]: o for o in self._others.values() if not o.gone}
        ready, _, _ = select.select([self._done, *there], [], [], seconds)
        for link in ready:
            if link is not self._done:
                there[link].hear()
        return self._done in ready and bool(self._done.recv(1))

    def _fault(self) -> WorkerError | None:
        now = time.monotonic()
        for rank, other in self._others.items():
            for kind, text in other.said:
                if kind == RAISED:
                    return self._error(rank, f"raised: {text}")
        for rank, other in self._others.items():
            if other.gone:
                return self._error(rank, "has died")
        for rank, other in self._others.items():
            if now - other.heard > self.patience:
                how = f"stands still: no sign of life for {self.patience:g} s"
                return self._error(rank, how)
        return None

    def _error(self, rank: int, how: str) -> WorkerError:
        return WorkerError(
            f"the process of rank {rank}, of {self.count} that were launched, {how}.",
            "processes that keep going as long as the run",
            "see what it printed; then start all of them again, with resume= where the run has a "
            "checkpoint.",
        )

    def close(self) -> None:
        """At the end: waits for the others to hang up."""
        limit = time.monotonic() + GRACE
        while not all(o.gone for o in self._others.values()) and time.monotonic() < limit:
            self._listened(SLICE)
        self._hang_up()

    def cut(self) -> None:
        """Closes the links, upon which the others end."""
        self.broken = True
        self._hang_up()

    def _hang_up(self) -> None:
        self._calls.put(None)
        links = [link for other in self._others.values() for link in other.links.values()]
        for link in (*links, self._server, self._done, self._wake):
            with suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)
            link.close()


class Following:
    """The `rank`-th process, whose first one is on the machine `host`, with its `numbers`. Where
    that ends without a word, this one does too."""

    def __init__(self, rank: int, host: str, numbers: Sequence[int]) -> None:
        port, token = int(numbers[0]), np.array(numbers[1:], np.int32).tobytes()
        self._links = []
        for kind in (CALLS, LIFE):
            link = socket.create_connection((host, port), timeout=GRACE)
            link.sendall(GREETING.pack(token, rank, kind))
            link.settimeout(None)
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._links.append(link)
        self._over, self._turn = False, threading.Lock()
        threading.Thread(target=self._live, daemon=True).start()

    def receive(self) -> tuple[str, Any, Tree]:
        """What comes next, however long that takes. Gone where the first process is no more."""
        try:
            header, size = SIZES.unpack(_received(self._links[CALLS], SIZES.size).tobytes())
            text = _received(self._links[CALLS], header).tobytes()
            return read(text, _received(self._links[CALLS], size))
        except OSError as error:
            raise Gone from error

    def say(self, kind: int, text: str) -> None:
        """Tells the first process what this one RAISED, or that it has LOST another."""
        with suppress(OSError):
            self._say(text.encode(), kind)

    def _say(self, text: bytes, kind: int = RAISED) -> None:
        with self._turn:
            self._links[LIFE].sendall(SAID.pack(len(text), kind) + text)

    def close(self) -> None:
        """At the end."""
        self._over = True
        for link in self._links:
            with suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)
            link.close()

    def _live(self) -> None:
        with suppress(OSError, ValueError):  # one that is closed
            while not select.select([self._links[LIFE]], [], [], BEAT)[0]:  # until it is closed
                self._say(b"")
        if not self._over:
            time.sleep(GRACE)
            if not self._over:  # in a call that does not come back
                os._exit(1)
