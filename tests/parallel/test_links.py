"""Links between processes that were started together: what a message is, and what is known of one
that is lost."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from tandem.backends.messages import Message, read
from tandem.errors import WorkerError
from tandem.parallel.links import Lead
from tandem.types import Batch
from tests.helpers import ROOT

FOLLOWER = """
import os, sys
from tandem.parallel.links import LOST, RAISED, Following, Gone
rank, *numbers = map(int, sys.argv[1:])
link = Following(rank, "127.0.0.1", numbers)
print("there", flush=True)
try:
    while True:
        verb, data, arrays = link.receive()
        if verb == "over":
            link.close()
            break
        if verb == "print":
            print(data, arrays[0].sum(), flush=True)
        elif data == rank and verb == "die":
            os._exit(3)
        elif verb == "die":  # as an engine's collective call would
            link.say(LOST, "another one was lost")
        elif data == rank and verb == "raise":
            link.say(RAISED, "OSError: the device has fallen off the bus")
except Gone:
    sys.exit(5)
"""


@contextmanager
def linked(count: int, patience: float) -> Iterator[tuple[Lead, list[Any]]]:
    """The first of `count` processes, and the others."""
    lead = Lead(count, loopback=True, patience=20.0)
    with socket.create_connection(("127.0.0.1", int(lead.numbers[0]))) as stranger:
        stranger.sendall(b"GET / HTTP/1.0 and so on")
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    each = [
        subprocess.Popen(
            [sys.executable, "-c", FOLLOWER, str(rank), *map(str, lead.numbers.tolist())],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )
        for rank in range(1, count)
    ]
    try:
        lead.accept()
        lead.patience = patience
        for process in each:
            assert process.stdout is not None and process.stdout.readline() == "there\n"
        yield lead, each
    finally:
        for process in each:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


def stuck() -> None:
    """A call of an engine's that does not come back."""
    time.sleep(30)


def test_a_message_travels() -> None:
    tree = (
        Batch(np.arange(6.0).reshape(2, 3), {"a": np.array([True])}, extra={"x": np.zeros(())}),
        None,
        (),
        np.zeros((0, 4), np.int32),
    )
    message = Message("call", [1, "two"], tree)
    payload = np.empty(message.size, np.uint8)
    message.fill(payload)
    verb, data, (batch, none, empty, zero) = read(message.header, payload)
    assert (verb, data, none, empty) == ("call", [1, "two"], None, ())
    assert isinstance(batch, Batch) and batch.reward == () and zero.shape == (0, 4)
    np.testing.assert_array_equal(batch.obs, tree[0].obs)
    assert batch.action["a"].dtype == np.bool_ and batch.extra["x"].shape == ()


def test_calls_are_made_together_and_end() -> None:
    with linked(2, 20.0) as (lead, (other,)):
        for i in range(2):  # longer than what a link takes at once
            x = np.full(2**21 + i, i + 1, np.int64)

            def call(i: int = i, x: Any = x) -> str:
                lead.send("print", i, (x,))
                return "mine"

            assert lead.during(call, ()) == "mine"
            assert other.stdout.readline() == f"{i} {x.sum()}\n"
        lead.send("over")
        lead.close()
        assert other.wait(10) == 0 and not lead.broken


@pytest.mark.parametrize(
    ("verb", "what"),
    [
        ("raise", "rank 2, of 3 that were launched, raised: OSError: the device has fallen off"),
        ("die", "rank 2, of 3 that were launched, has died."),
    ],
)
def test_one_that_is_lost_is_named(verb: str, what: str) -> None:
    with linked(3, 20.0) as (lead, others):

        def call() -> None:
            lead.send(verb, 2)
            stuck()

        began = time.monotonic()
        with pytest.raises(WorkerError, match=what):
            lead.during(call, ())
        assert time.monotonic() - began < 5 and lead.broken
        assert others[0].wait(10) == 5, "the other one does not end"


@pytest.mark.slow
def test_one_that_stands_still_is_named() -> None:
    with linked(2, 2.0) as (lead, (other,)):
        time.sleep(2.5)  # for as long as nobody listens, nobody is missed
        assert lead.during(lambda: "well", ()) == "well"
        other.send_signal(signal.SIGSTOP)
        began = time.monotonic()
        with pytest.raises(WorkerError, match="rank 1, .* stands still: no sign of life for 2 s"):
            lead.during(stuck, ())
        assert 1.5 < time.monotonic() - began < 6


def test_a_call_that_raises_does_so() -> None:
    class Collective(Exception):
        pass

    def call(error: Exception) -> None:
        raise error

    with linked(2, 20.0) as (lead, (other,)):
        with pytest.raises(ValueError, match="of its own"):
            lead.during(lambda: call(ValueError("of its own")), (Collective,))
        assert other.wait(10) == 5
    with linked(2, 20.0) as (lead, (other,)):
        other.kill()
        with pytest.raises(WorkerError, match="rank 1, .* has died"):
            lead.during(lambda: call(Collective()), (Collective,))


def test_one_that_does_not_come() -> None:
    with pytest.raises(WorkerError, match="rank 1, of 2 .* has not come"):
        Lead(2, loopback=True, patience=0.2).accept()
