"""First and last rows of the episodes in a replay buffer."""

from __future__ import annotations

import numpy as np

from tandem.replay.buffer import SPAN, Ring
from tandem.types import IntArray


class EpisodeBounds:
    """First and last rows of the episodes in a ring. The ring is scanned lazily, so create a new
    object after the ring was loaded."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        # environment * SPAN + time of rows that end an episode, increasing
        self._ends: IntArray = np.zeros(0, np.int64)
        self._seen = 0  # time steps scanned

    def bounds(self, ids: IntArray) -> tuple[IntArray, IntArray]:
        """Return the ids of the first and last rows of the episodes that contain rows `ids`, as far
        as they are in the ring. The last row of a running episode is its newest."""
        self._look()
        ring, ends = self.ring, self._ends
        time, env = np.divmod(ids, ring.envs)
        at = np.searchsorted(ends, env * SPAN + time)  # the first end at or after the row
        around = np.concatenate([[-1], ends, [-1]])
        before, after = around[at], around[at + 1]
        first = np.where(before // SPAN == env, before % SPAN + 1, ring.oldest // ring.envs)
        last = np.where(after // SPAN == env, after % SPAN, ring.time - 1)
        first = np.maximum(first, ring.floors[env])
        return first * ring.envs + env, last * ring.envs + env

    def finished(self) -> tuple[IntArray, IntArray]:
        """Return the ids of the first and last rows of all finished episodes, as far as they are in
        the ring."""
        self._look()
        time, env = self._ends % SPAN, self._ends // SPAN
        last = time * self.ring.envs + env
        last = last[self.ring.valid.take(self.ring.position(last))]
        return self.bounds(last)[0], last

    def known(self, last: IntArray) -> IntArray:
        """Return the last rows of episodes whose next observation is known: one row earlier for
        episodes that terminated before the ring stored terminal observations."""
        ring, at = self.ring, self.ring.position(last)
        ended = ring.last.take(at) & (ring.discount.take(at) == 0)
        return last - ring.envs * (ended & (last < ring.terminal_from * ring.envs))

    def _look(self) -> None:
        ring = self.ring
        oldest = ring.oldest // ring.envs
        self._seen = max(self._seen, oldest)
        if self._seen == ring.time:
            return
        # the newest scanned rows may have been broken off since
        begin = max(self._seen - 1, oldest)
        ids = np.arange(begin * ring.envs, ring.time * ring.envs)
        at = ring.position(ids)
        # rows that only reset their environment belong to no episode
        time, env = np.divmod(ids[ring.last[at] | ~ring.valid[at]], ring.envs)
        ends = self._ends[self._ends % SPAN >= oldest]
        self._ends = np.unique(np.concatenate([ends, env * SPAN + time]))
        self._seen = ring.time
