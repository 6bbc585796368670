"""The true last observations of truncated episodes whose environment reset itself in the same
step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tandem.replay.array_files import fill
from tandem.spaces import Leaf
from tandem.types import AnyArray, IntArray


class CutStore:
    """A queue of (row id, observation), oldest first, with one entry per truncated episode in the
    ring. Its arrays grow as needed. Ids are increasing, so lookup is by bisection, and rows leave
    the ring in the order in which they were added."""

    def __init__(self, obs: Sequence[Leaf]) -> None:
        self._ids: IntArray = np.zeros(16, np.int64)
        self._obs: list[AnyArray] = [np.zeros((16, *leaf.shape), leaf.dtype) for leaf in obs]
        self._begin = self._end = 0

    def __len__(self) -> int:
        return self._end - self._begin

    @property
    def ids(self) -> IntArray:
        return self._ids[self._begin : self._end]

    @property
    def obs(self) -> list[AnyArray]:
        """The observations, one array [C, ...] per column."""
        return [x[self._begin : self._end] for x in self._obs]

    def append(self, ids: IntArray, obs: Sequence[AnyArray]) -> None:
        """Add the observations of rows with increasing ids that are not stored yet."""
        if self._end + len(ids) > len(self._ids):
            self._make_room(len(ids))
        new = slice(self._end, self._end + len(ids))
        self._ids[new] = ids
        for column, x in zip(self._obs, obs, strict=True):
            fill(column[new], x)
        self._end = new.stop
        # entries of the same time step exist if episodes were broken off there
        if 0 < len(ids) < len(self) and self._ids[new.start - 1] > ids[0]:
            order = np.argsort(self.ids)
            for x in (self.ids, *self.obs):
                x[:] = x[order]

    def drop(self, before: int) -> None:
        """Remove the rows with ids below `before`."""
        if self._begin < self._end and self._ids[self._begin] < before:
            self._begin += int(np.searchsorted(self.ids, before))

    def clear(self) -> None:
        self._begin = self._end = 0

    def find(self, ids: IntArray) -> tuple[IntArray, IntArray]:
        """Return (indices of the `ids` that have an entry, the index in `obs` of each)."""
        at = np.minimum(np.searchsorted(self.ids, ids), len(self) - 1)
        which = np.flatnonzero(self.ids[at] == ids)
        return which, at[which]

    def _make_room(self, extra: int) -> None:
        """Move the entries to the front of arrays at least twice as long as needed now, so that
        this happens rarely."""
        length = max(len(self._ids), 2 * (len(self) + extra))

        def moved(x: AnyArray) -> AnyArray:
            new = np.zeros((length, *x.shape[1:]), x.dtype)
            new[: len(self)] = x[self._begin : self._end]
            return new

        self._ids, self._obs = moved(self._ids), [moved(x) for x in self._obs]
        self._begin, self._end = 0, len(self)
