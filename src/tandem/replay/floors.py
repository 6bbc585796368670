"""Rows of a ring that are dropped earlier for some environments than for others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tandem.types import BoolArray, IntArray

if TYPE_CHECKING:
    from tandem.replay.buffer import Ring


class Floors:
    """The first time step kept for each of N environments. Earlier rows that are still in the
    ring's arrays are no longer valid."""

    def __init__(self, envs: int) -> None:
        self.envs = envs
        self.steps: IntArray = np.zeros(envs, np.int64)

    def uneven(self, first: int) -> bool:
        """Return True if a ring that starts at time step `first` keeps more rows of some
        environments than of others."""
        return bool(self.steps.max() > first)

    def above(self, ids: IntArray) -> BoolArray:
        """Return True for each of `ids` that is kept; bool, in the shape of `ids`."""
        return ids // self.envs >= self.steps[ids % self.envs]

    def drop(self, ids: IntArray) -> int:
        """Drop rows up to `ids` of their environments. Return the first time step that is kept for
        any environment."""
        np.maximum.at(self.steps, ids % self.envs, ids // self.envs + 1)
        return int(self.steps.min())


def valid_rows(ring: Ring, envs: Sequence[int] | None = None, count: int | None = None) -> IntArray:
    """Return the increasing ids of a ring's valid rows, or of the `count` oldest, of these
    environments or of all."""
    end = ring.newest + 1
    # enough time steps to contain them, unless many rows are invalid
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
