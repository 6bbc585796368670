"""What actor-learners keep to replay, in memory that outlives them."""

from __future__ import annotations

from typing import Any

from tandem.envs.vector import Environments
from tandem.learning.sequence_learner import buffer_for
from tandem.networks.plan import select
from tandem.types import Array, JSONDict
from tandem.workers.shared_memory import Handle, SharedArrays, shape_dtype


class SharedReplay:
    """The buffers of actor-learners that are processes of this machine, in shared memory: what one
    that is lost has kept is its successor's.

    `learned` is what each of them said last: the updates that it owes, and what is to be known of
    its buffer."""

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
        """The arguments of actor-learner i."""
        return (self._memory[i].handle if self._memory else None), self.learned[i]

    def state(self, replay: bool) -> tuple[list[JSONDict], dict[str, Array]]:
        """Of what each of them learns from, all of them at rest; without buffers unless
        `replay`."""
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
        """Goes on from there; `learned` is what to tell them."""
        self.learned = []
        for i, (data, buffer) in enumerate(zip(each, self.buffers, strict=True)):
            if buffer is not None and "buffer" in data:
                buffer.load_state(data["buffer"], select(arrays, str(i)))
            left = None if buffer is None else buffer.left()
            self.learned.append({"owed": data["owed"], "left": left})
