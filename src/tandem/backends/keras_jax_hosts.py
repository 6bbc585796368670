"""Several processes with JAX, on one machine or more, that `jax.distributed` has connected: each
update is one program over the devices of all of them, into which XLA puts the sums, by gloo among
processors and nccl among GPUs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np

from tandem.backends.keras_hosts import Calls, Group
from tandem.backends.keras_jax_devices import Layout
from tandem.errors import EngineError
from tandem.types import AnyArray, Array, Tree, Variable, tree_map

# what `jax.distributed.initialize` reads itself is the first; the others are given to it
VARIABLES = ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")
SHUTDOWN = 60  # seconds that processes wait for each other at their end
FOR_GOOD = 10**6  # seconds of whatever JAX waits for: it would end the process by a fatal error


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what gloo prints when it connects, past Python."""
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def _whole(rows: Array) -> Array:
    return rows.sum(0, dtype=rows.dtype)


class Meeting:
    """The processes, once all of them are there: of `count` this is the `rank`-th; `host` is the
    machine of the first. It waits for them. EngineError where the variables make no sense."""

    def __init__(self) -> None:
        address = os.environ[VARIABLES[0]]
        count, rank = (os.environ.get(name) for name in VARIABLES[1:])
        try:
            if not address.rpartition(":")[2].isdecimal() or ":" not in address:
                raise ValueError(f"{VARIABLES[0]}={address!r} has no port, as localhost:6543 has")
            jax.distributed.initialize(
                address,
                None if count is None else int(count),
                None if rank is None else int(rank),
                initialization_timeout=FOR_GOOD,
                heartbeat_timeout_seconds=FOR_GOOD,
                shutdown_timeout_seconds=SHUTDOWN,
            )
        except (RuntimeError, ValueError, TypeError) as error:
            raise EngineError(
                f"the launched processes do not meet: {str(error).splitlines()[0][:200]}",
                f"{', '.join(VARIABLES)} as jax.distributed.initialize takes them, with a port "
                "that process 0 can open and all can reach",
                f"set them for each process, or unset {VARIABLES[0]} for a run of one process.",
            ) from error
        self.host = address.rpartition(":")[0].strip("[]")
        self.count, self.rank = jax.process_count(), jax.process_index()

    def told(self, numbers: AnyArray) -> AnyArray:
        """The first process's numbers, int32, which all call this with as many of."""
        with _quiet():
            return self.layout("auto", None).first(numbers)

    def devices(self, device: str) -> int:
        """Of all processes."""
        return len(jax.devices("cpu" if device == "cpu" else None))

    def layout(self, device: str, group: Group | None) -> HostLayout:
        """For a run: of all their devices."""
        return HostLayout(device, group)


class HostLayout(Layout):
    """Where the arrays of a call of updates are: devices of several processes, each of which has
    all weights."""

    def __init__(self, device: str, group: Group | None) -> None:
        self._spread(jax.devices("cpu" if device == "cpu" else None))
        self._own = [d for d in self._devices if d.process_index == jax.process_index()]
        self.calls = Calls(group, self._changed, self._leave, (jax.errors.JaxRuntimeError,))

    def first(self, numbers: AnyArray) -> AnyArray:
        """The first process's numbers, which all call this with as many of."""
        rows = np.zeros((self.count, len(numbers)), numbers.dtype)
        rows[0] = numbers  # those of the first device
        each = self._placed(rows, self._first)
        return np.asarray(self.here(jax.jit(_whole, out_shardings=self.everywhere)(each)))

    # Between calls

    def _changed(self, variables: list[Variable]) -> list[int]:
        kept = [self._kept.get(id(v), (None, None))[0] for v in variables]
        return [
            i for i, (v, x) in enumerate(zip(variables, kept, strict=True)) if v._value is not x
        ]

    def _leave(self, variables: list[Variable]) -> None:
        """`write` has noted what it left."""

    # In a call

    def _placed(self, x: Array, sharding: Any) -> Any:
        host = np.asarray(x)
        return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])

    def whole(self, tree: Tree) -> Tree:
        return tree_map(lambda x: self._placed(x, self.everywhere), tree)

    def gathered(self, tree: Tree) -> Tree:
        return tree_map(self.share, tree)

    def here(self, tree: Tree) -> Tree:
        return tree_map(lambda x: x.addressable_data(0), tree)

    def read(self, variables: list[Variable]) -> list[Array]:
        values = []
        for v in variables:
            first, everywhere = self._kept.get(id(v), (None, None))
            if v._value is not first:  # written since the last call
                own = [jax.device_put(v._value, device) for device in self._own]
                everywhere = jax.make_array_from_single_device_arrays(
                    v._value.shape, self.everywhere, own
                )
            values.append(everywhere)
        return values
