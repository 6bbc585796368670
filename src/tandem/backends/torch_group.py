"""Processes that make the same updates, each with its own torch and device: sums over all of them,
and messages from the first one, which leads, to the others."""

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

COMPILING = 600.0  # additional seconds for others to compile before a first sum
FOR_GOOD = 10.0**8  # seconds that others wait for the first process, which may pause


class Lost(Exception):
    """Another process of the group has ended or hangs."""


class Followers(Protocol):
    """The interface of the other processes for the first one."""

    def lost(self) -> WorkerError:
        """Return the error that names the process that died or hung. None of the others is left
        after this."""

    def end(self) -> None:
        """Make sure that none is left after they received the message to end."""


class Group:
    """Process `rank` of `count`. `join` connects them.

    Rank 0 sends messages, a verb with a tree of arrays, and the others wait for them without limit;
    in between all of them compute sums. If a process ends, or does not reach a sum within
    `patience` seconds of the others, the group ends: with the error of `followers` on rank 0, with
    Lost elsewhere.
    """

    def __init__(self, rank: int, count: int, device: torch.device) -> None:
        if not distributed.is_available():
            raise EngineError(
                f"devices={count}, but this torch was built without its distributed package.",
                "a build with it, such as those of pytorch.org",
                "install another build, or use devices=1.",
            )
        self.rank, self.count, self.device = rank, count, device
        self.followers: Followers | None = None  # rank 0 only
        # gloo or nccl groups by purpose
        self._links: dict[str, distributed.ProcessGroup] = {}
        self._close: Callable[[], object] | None = None
        self._header = b""  # header of the latest message

    def join(self, store: distributed.Store, patience: float, here: str = "127.0.0.1") -> None:
        """Connect to the others, which have the same torch `store` and also call this. here: the
        address of this machine for the others, different from the default if they are on other
        machines; "": that of its host name."""

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
        for _ in range(2):  # nccl accesses the store at its first sum
            self.sum(torch.zeros(1, device=self.device), first=True)
            self.sum(torch.zeros(1, device=self.device))

    @property
    def joined(self) -> bool:
        return bool(self._links)

    def sum(self, x: torch.Tensor, first: bool = False) -> torch.Tensor:
        """Replace x by its sum over all processes and return it. first: others may have to compile
        beforehand."""
        self._done(lambda: self._links["first sums" if first else "sums"].allreduce([x]))
        return x

    def gather(self, x: torch.Tensor) -> list[torch.Tensor]:
        """Return the x of each process, all of the same size."""
        each = [torch.empty_like(x) for _ in range(self.count)]
        self._done(lambda: self._links["messages"].allgather([each], [x]))
        return each

    def send(self, verb: str, data: object = None, arrays: Tree = ()) -> None:
        """Rank 0: send the others a message, JSON data with a tree of NumPy arrays."""
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
        """Other ranks: receive the next message."""
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
        except (RuntimeError, KeyError) as error:  # a closed connection
            self.cut()
            lost = Lost(str(error)) if self.followers is None else self.followers.lost()
            raise lost from error

    def close(self) -> None:
        """Rank 0: end the others."""
        if self._links:
            with suppress(WorkerError):  # one was already lost: then none is left
                self.send("end")
            self.cut()
        if self.followers is not None:
            self.followers.end()

    def cut(self) -> None:
        """Leave the group; the others notice."""
        if self._close is not None:
            self._close()


def launched_store(seconds: float) -> distributed.Store:
    """Return torch's store for processes launched together, from the environment variables that
    torchrun sets. Raises EngineError if they do not connect within `seconds`; afterwards the store
    waits for days."""
    try:
        wait = timedelta(seconds=seconds)
        store, *_ = next(iter(distributed.rendezvous("env://", timeout=wait)))
    except (RuntimeError, ValueError) as error:  # torch's errors for different failures
        raise EngineError(
            f"the launched processes could not connect: {str(error).splitlines()[0][:200]}",
            "RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT as torchrun sets them, with a port "
            "that rank 0 can open and all others can reach",
            "torchrun --nproc-per-node 2 -m tandem train …, or start one process with --devices.",
        ) from error
    store.set_timeout(timedelta(days=24))
    return within(store, "tandem")


def within(store: distributed.Store, name: str) -> distributed.Store:
    """Return a part of a store."""
    return distributed.PrefixStore(name, store)


def _cut(links: dict[str, distributed.ProcessGroup]) -> None:
    for link in links.values():
        link.abort()
    links.clear()
