"""Rows that are let go of for some environments of a ring sooner than for others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tandem.types import BoolArray, IntArray

if TYPE_CHECKING:
    from tandem.replay.buffer import Ring


class Floors:
    """The first time step that is kept of each of N environments. Rows before it that are still in
    the ring's arrays are not valid any more."""

    def __init__(self, envs: int) -> None:
        self.envs = envs
        self.steps: IntArray = np.zeros(envs, np.int64)

    def uneven(self, first: int) -> bool:
        """Whether more is kept of some environments than of others, in a ring that begins with time
        step `first`."""
        return bool(self.steps.max() > first)

    def above(self, ids: IntArray) -> BoolArray:
        """Whether rows `ids` are kept; bool, in their shape."""
        return ids // self.envs >= self.steps[ids % self.envs]

    def drop(self, ids: IntArray) -> int:
        """Rows up to `ids` of their environments are not kept any more. Returns the first time step
        that is kept of any."""
        np.maximum.at(self.steps, ids % self.envs, ids // self.envs + 1)
        return int(self.steps.min())


def valid_rows(ring: Ring, envs: Sequence[int] | None = None, count: int | None = None) -> IntArray:
    """The ids of a ring's valid rows, or of the `count` oldest, of these environments or of all;
    rising."""
    end = ring.newest + 1
    # as many time steps as hold them, unless many rows are not valid
    steps = end if count is None else count // max(1, ring.envs if envs is None else len(envs)) + 2
    while True:
        high = min(ring.oldest + steps * ring.envs, end)
        ids = np.arange(ring.oldest, high)
        if envs is not None:
            ids = ids[np.isin(ids % ring.envs, envs)]
        ids = ids[ring.valid.take(ring.position(ids))]
        if high == end or (count is not None and len(ids) >= count):
            return ids[:count]
        steps *= 2
