"""Transports of requests and results between a run and its workers: shared memory on this machine,
or a Ray cluster (`tandem.workers.ray`)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from tandem.learning.parallel.worker_group import Worker
from tandem.types import Array, Tree, tree_map
from tandem.workers import ray as cluster
from tandem.workers.process import Process
from tandem.workers.shared_memory import Handle, ShapeDtype, SharedArrays, shape_dtype

Weights = Mapping[str, Mapping[str, Array]]  # by the network's role
Arrays = Mapping[str, Array]
Message = Any  # JSON data


class Responder(Protocol):
    """Interface of the object in a worker, created there as `make(spec, worker.part, *more)`."""

    def respond(self, message: Message, weights: Weights, arrays: Arrays) -> tuple[Message, Arrays]:
        """Answer a request. Its arrays may be read-only, and are valid until the next request."""


class SharedMemoryTransport:
    """Transport between this process and workers through shared memory: arrays are copied once each
    way and never pickled. A request, its answer and its weights occupy a slot, so the number of
    slots limits the open requests.

    weights: an example. shapes: shapes of all arrays in either direction, by a worker's first
    environment and by slot."""

    def __init__(
        self,
        make: Callable[..., Responder],
        spec: object,
        weights: Weights,
        shapes: Mapping[int, Mapping[int, Mapping[str, ShapeDtype]]],
    ) -> None:
        self._make, self._spec, self._roles = make, spec, tuple(weights)
        names = {f"{role}/{n}": x for role, arrays in weights.items() for n, x in arrays.items()}
        weight_shapes = {name: shape_dtype(x) for name, x in names.items()}
        self._arrays = {
            first: {slot: SharedArrays.create(inner) for slot, inner in slots.items()}
            for first, slots in shapes.items()
        }
        self._weights = {
            slot: SharedArrays.create(weight_shapes) for slots in shapes.values() for slot in slots
        }

    def start(self, worker: Worker, *more: object) -> Process:
        """Start or restart a worker."""
        slots = {
            slot: (self._weights[slot].handle, arrays.handle)
            for slot, arrays in self._arrays[worker.first].items()
        }
        handles = [*(x for x in more if isinstance(x, Handle)), *sum(slots.values(), ())]
        inherits = tuple(fd for handle in handles for fd in handle.inherits)
        arguments = (self._make, (self._spec, worker.part, *more), self._roles, slots)
        return Process(inherits, SharedMemoryWorker, *arguments)

    def publish(self, slot: int, weights: Weights) -> None:
        """Set the weights for the next requests in a slot."""
        shared = self._weights[slot]
        for role, arrays in weights.items():
            for name, x in arrays.items():
                np.copyto(shared[f"{role}/{name}"], x)

    def request(self, worker: Worker, slot: int, message: Message, arrays: Arrays) -> None:
        """Send a request to a worker; `worker.process` returns the answer."""
        _put(arrays, self._arrays[worker.first][slot])
        worker.send_bytes(json.dumps([slot, message]).encode())

    def receive(self, worker: Worker, slot: int, answer: Any) -> tuple[Message, Arrays]:
        """Decode an answer to the result of `respond`. The arrays are valid until the next request
        in the slot, and may be longer than the originals, or read-only."""
        return json.loads(answer), self._arrays[worker.first][slot]


class SharedMemoryWorker:
    """Worker process's side of the shared-memory transport: its responder, and the shared weights
    and arrays of each slot."""

    def __init__(
        self,
        make: Callable[..., Responder],
        arguments: tuple[object, ...],
        roles: tuple[str, ...],
        slots: Mapping[int, tuple[Handle, Handle]],
    ) -> None:
        self._served, self._slots = make(*arguments), dict[int, tuple[Weights, SharedArrays]]()
        for slot, (weights, arrays) in slots.items():
            shared = SharedArrays.attach(weights)
            by_role = {role: shared.under(role) for role in roles}
            self._slots[slot] = by_role, SharedArrays.attach(arrays)

    def on_bytes(self, request: bytes) -> bytes:
        """Answer a request, whose arrays are in its slot."""
        slot, message = json.loads(request)
        weights, shared = self._slots[slot]
        answer, arrays = self._served.respond(message, weights, shared)
        _put(arrays, shared)
        return json.dumps(answer).encode()

    def __getattr__(self, name: str) -> Any:
        """Forward other methods to the responder."""
        return getattr(self._served, name)


class RayTransport:
    """Transport over the Ray cluster at an address, used like `SharedMemoryTransport`. Weights are
    sent by Ray's object store, once for all workers of a node; arrays are sent with the calls."""

    def __init__(
        self,
        make: Callable[..., Responder],
        spec: object,
        address: str,
        cpus: float,
        count: int,
        patience: float,
    ) -> None:
        self._ray, self._make, self._cpus = cluster.connect(address), make, cpus
        self._cluster = cluster.joined(self._ray)
        cluster.wait_for_cpus(self._ray, count * cpus, patience)
        self._spec = cluster.put(self._ray, spec)
        self._actors: dict[int, cluster.RayActor] = {}  # by a worker's first environment
        self._weights: dict[int, object] = {}  # by slot: references to the object store

    def start(self, worker: Worker, *more: object) -> cluster.RayActor:
        """Start a worker in its actor, which Ray may have restarted."""
        actor = self._actors.get(worker.first)
        if actor is None or actor.ended:
            actor = self._actors[worker.first] = cluster.RayActor(self._ray, self._cpus)
        actor.begin(self._make, self._spec, worker.part, *more)
        return actor

    def publish(self, slot: int, weights: Weights) -> None:
        cluster.check_joined(self._ray, self._cluster)
        self._weights[slot] = cluster.put(self._ray, weights)

    def request(self, worker: Worker, slot: int, message: Message, arrays: Arrays) -> None:
        worker.ask("respond", message, self._weights[slot], arrays)

    def receive(self, worker: Worker, slot: int, answer: Any) -> tuple[Message, Arrays]:
        message, arrays = answer
        return message, arrays


Transport = SharedMemoryTransport | RayTransport


def writable(tree: Tree) -> Tree:
    """Copy the read-only arrays of a tree, such as those from Ray's object store."""
    return tree_map(lambda x: x if x.flags.writeable else x.copy(), tree)


def _put(arrays: Arrays, shared: SharedArrays) -> None:
    for name, x in arrays.items():
        shared[name][: len(x)] = x
