"""Processes that make the same updates, each with torch and a device of its own: sums over all of
them, and what the first one, which leads, sends to the others."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any, Protocol

import torch
from torch import distributed

from tandem.backends.messages import Message, read
from tandem.errors import EngineError, WorkerError
from tandem.types import Tree

COMPILING = 600.0  # seconds more that others may take for what they compile first
FOR_GOOD = 10.0**8  # seconds that others wait for the first one, which may pause as it likes


class Lost(Exception):
    """Another process of the group is no more, or stands still."""


class Followers(Protocol):
    """The other processes, as the first one sees them."""

    def lost(self) -> WorkerError:
        """The error that names the one that died or stood still; none of them is there any more."""

    def end(self) -> None:
        """Sees to it that none is left, after they were told to end."""


class Group:
    """The `rank`-th of `count` processes. `join` connects them.

    Rank 0 sends messages, a verb with a tree of arrays, and the others wait for them as long as it
    takes; in between all of them add up. A process that is gone, or does not come to a sum within
    `patience` seconds of the others, ends the group: on rank 0 with the error that `followers` has,
    elsewhere with Lost."""

    def __init__(self, rank: int, count: int, device: torch.device) -> None:
        if not distributed.is_available():
            raise EngineError(
                f"devices={count}, but this torch was built without its distributed package.",
                "a build with it, such as those of pytorch.org",
                "install another build, or use devices=1.",
            )
        self.rank, self.count, self.device = rank, count, device
        self.followers: Followers | None = None  # of rank 0
        # of gloo or nccl, by what they are for
        self._links: dict[str, distributed.ProcessGroup] = {}
        self._close: Callable[[], object] | None = None
        self._header = b""  # of the latest message

    def join(self, store: distributed.Store, patience: float, here: str = "127.0.0.1") -> None:
        """Connects with the others, who have the same `store` of torch's, and all call this. here:
        the address of this machine's by which they reach it, which is another one where they are on
        others; "": that of its name."""

        def gloo(name: str, seconds: float) -> distributed.ProcessGroup:
            options = distributed.ProcessGroupGloo._Options()
            make = distributed.ProcessGroupGloo
            options._devices = [
                make.create_device(hostname=here) if here else make.create_default_device()
            ]
            options._timeout = timedelta(seconds=seconds)
            within = distributed.PrefixStore(name, store)
            return make(within, self.rank, self.count, options)

        def nccl(name: str, seconds: float) -> distributed.ProcessGroup:
            options = distributed.ProcessGroupNCCL.Options()
            options._timeout = timedelta(seconds=seconds)
            return distributed.ProcessGroupNCCL(
                distributed.PrefixStore(name, store), self.rank, self.count, options
            )

        make = gloo if self.device.type == "cpu" else nccl
        self._links = {
            "messages": gloo("messages", FOR_GOOD if self.rank else patience),
            "sums": make("sums", patience),
            "first sums": make("first sums", patience + COMPILING),
        }
        self._close = weakref.finalize(self, _cut, self._links)
        for _ in range(2):  # nccl looks into the store at its first sum
            self.sum(torch.zeros(1, device=self.device), first=True)
            self.sum(torch.zeros(1, device=self.device))

    @property
    def joined(self) -> bool:
        return bool(self._links)

    def sum(self, x: torch.Tensor, first: bool = False) -> torch.Tensor:
        """x becomes the sum of all processes' x, and is returned. first: others may have to compile
        what they are to add."""
        self._done(lambda: self._links["first sums" if first else "sums"].allreduce([x]))
        return x

    def gather(self, x: torch.Tensor) -> list[torch.Tensor]:
        """The x of each process, all of one size."""
        each = [torch.empty_like(x) for _ in range(self.count)]
        self._done(lambda: self._links["messages"].allgather([each], [x]))
        return each

    def send(self, verb: str, data: object = None, arrays: Tree = ()) -> None:
        """Rank 0: gives the others a message, JSON data with a tree of NumPy arrays."""
        message = Message(verb, data, arrays)
        again, self._header = message.header == self._header, message.header
        lengths = [0 if again else len(message.header), message.size]
        self._broadcast(torch.tensor(lengths, device="cpu"))
        if not again:
            self._broadcast(torch.frombuffer(bytearray(message.header), dtype=torch.uint8))
        if message.size:
            payload = torch.empty(message.size, dtype=torch.uint8, device="cpu")
            message.fill(payload.numpy())
            self._broadcast(payload)

    def receive(self) -> tuple[str, Any, Tree]:
        """The others: what comes next."""
        lengths = torch.zeros(2, dtype=torch.int64, device="cpu")
        self._broadcast(lengths)
        header, size = lengths.tolist()
        if header:
            bytes_ = torch.empty(header, dtype=torch.uint8, device="cpu")
            self._broadcast(bytes_)
            self._header = bytes_.numpy().tobytes()
        payload = torch.empty(size, dtype=torch.uint8, device="cpu")
        if size:
            self._broadcast(payload)
        return read(self._header, payload.numpy())

    def _broadcast(self, x: torch.Tensor) -> None:
        self._done(lambda: self._links["messages"].broadcast([x]))

    def _done(self, begin: Callable[[], distributed.Work]) -> None:
        try:
            begin().wait()
        except (RuntimeError, KeyError) as error:  # a link that is cut
            self.cut()
            lost = Lost(str(error)) if self.followers is None else self.followers.lost()
            raise lost from error

    def close(self) -> None:
        """Rank 0: the others end."""
        if self._links:
            with suppress(WorkerError):  # of one that was lost: then none is left
                self.send("end")
            self.cut()
        if self.followers is not None:
            self.followers.end()

    def cut(self) -> None:
        """Leaves the group, which the others notice."""
        if self._close is not None:
            self._close()


def launched_store(seconds: float) -> distributed.Store:
    """torch's store of the processes that were launched together, by the environment variables
    that torchrun sets. EngineError where they do not meet within so many seconds; afterwards, who
    waits in it waits for days."""
    try:
        wait = timedelta(seconds=seconds)
        store, *_ = next(iter(distributed.rendezvous("env://", timeout=wait)))
    except (RuntimeError, ValueError) as error:  # of torch, for each way in which it can fail
        raise EngineError(
            f"the launched processes could not connect: {str(error).splitlines()[0][:200]}",
            "RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT as torchrun sets them, with a port "
            "that rank 0 can open and all others can reach",
            "torchrun --nproc-per-node 2 -m tandem train …, or start one process with --devices.",
        ) from error
    store.set_timeout(timedelta(days=24))
    return within(store, "tandem")


def within(store: distributed.Store, name: str) -> distributed.Store:
    """A part of a store."""
    return distributed.PrefixStore(name, store)


def _cut(links: dict[str, distributed.ProcessGroup]) -> None:
    for link in links.values():
        link.abort()
    links.clear()
