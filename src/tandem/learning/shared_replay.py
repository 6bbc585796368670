"""Replay buffers of actor-learners in shared memory, which outlives their processes."""

from __future__ import annotations

from typing import Any

from tandem.envs.vector import Environments
from tandem.learning.sequence_learner import buffer_for
from tandem.networks.plan import select
from tandem.types import Array, JSONDict
from tandem.workers.shared_memory import Handle, SharedArrays, shape_dtype


class SharedReplay:
    """The replay buffers of actor-learner processes on this machine, in shared memory. The
    successor of a lost process continues with its buffer.

    `learned` is the last report of each process: its pending updates, and data on its buffer."""

    def __init__(self, algorithm: Any, environments: Environments, count: int) -> None:
        self.learned: list[JSONDict | None] = [None] * count
        self._memory: list[SharedArrays] = []
        self.buffers = [
            buffer_for(algorithm, environments.observation, environments.action)
            for _ in range(count)
        ]
        for buffer in self.buffers:
            if buffer is not None:
                shapes = {name: shape_dtype(x) for name, x in buffer.arrays.items()}
                self._memory.append(SharedArrays.create(shapes))
                self._memory[-1]["writing"][:] = -1
                buffer.live_in(dict(self._memory[-1]))

    def of(self, i: int) -> tuple[Handle | None, JSONDict | None]:
        """Return the arguments of actor-learner i."""
        return (self._memory[i].handle if self._memory else None), self.learned[i]

    def state(self, replay: bool) -> tuple[list[JSONDict], dict[str, Array]]:
        """Return the learner states of all actor-learners, which must be idle; with `replay`,
        including their buffers."""
        each, arrays = [], dict[str, Array]()
        for i, (learned, buffer) in enumerate(zip(self.learned, self.buffers, strict=True)):
            data: JSONDict = {"owed": learned["owed"] if learned else 0}
            if buffer is not None and replay and learned is not None:
                buffer.take_over(learned["left"])
                data["buffer"], inner = buffer.state()
                arrays |= {f"{i}/{n}": x for n, x in inner.items()}
            each.append(data)
        return each, arrays

    def load_state(self, each: list[JSONDict], arrays: dict[str, Array]) -> None:
        """Restore this state; afterwards `learned` has the data for the actor-learners."""
        self.learned = []
        for i, (data, buffer) in enumerate(zip(each, self.buffers, strict=True)):
            if buffer is not None and "buffer" in data:
                buffer.load_state(data["buffer"], select(arrays, str(i)))
            left = None if buffer is None else buffer.left()
            self.learned.append({"owed": data["owed"], "left": left})
