"""Where the episodes of a replay buffer begin and end."""

from __future__ import annotations

import numpy as np

from tandem.replay.buffer import SPAN, Ring
from tandem.types import IntArray


class EpisodeBounds:
    """Where the episodes of a ring's rows begin and end. It looks at the ring when it is asked, so
    it is to be made anew for a ring that was loaded."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        # environment * SPAN + time of rows that end an episode, rising
        self._ends: IntArray = np.zeros(0, np.int64)
        self._seen = 0  # time steps looked at

    def bounds(self, ids: IntArray) -> tuple[IntArray, IntArray]:
        """The first and the last row, as ids, of the episodes that rows `ids` are in, as far as the
        ring holds them; the last one of a running episode is its newest."""
        self._look()
        ring, ends = self.ring, self._ends
        time, env = np.divmod(ids, ring.envs)
        at = np.searchsorted(ends, env * SPAN + time)  # of the first end that is not before the row
        around = np.concatenate([[-1], ends, [-1]])
        before, after = around[at], around[at + 1]
        first = np.where(before // SPAN == env, before % SPAN + 1, ring.oldest // ring.envs)
        last = np.where(after // SPAN == env, after % SPAN, ring.time - 1)
        first = np.maximum(first, ring.floors[env])
        return first * ring.envs + env, last * ring.envs + env

    def finished(self) -> tuple[IntArray, IntArray]:
        """The first and the last rows, as ids, of all episodes that have ended, as far as the ring
        holds them."""
        self._look()
        time, env = self._ends % SPAN, self._ends // SPAN
        last = time * self.ring.envs + env
        last = last[self.ring.valid.take(self.ring.position(last))]
        return self.bounds(last)[0], last

    def known(self, last: IntArray) -> IntArray:
        """The last rows of episodes after which the observation is known: one earlier where the
        episode terminated before the ring stored terminal observations."""
        ring, at = self.ring, self.ring.position(last)
        ended = ring.last.take(at) & (ring.discount.take(at) == 0)
        return last - ring.envs * (ended & (last < ring.terminal_from * ring.envs))

    def _look(self) -> None:
        ring = self.ring
        oldest = ring.oldest // ring.envs
        self._seen = max(self._seen, oldest)
        if self._seen == ring.time:
            return
        # the newest that were looked at may have been broken off since
        begin = max(self._seen - 1, oldest)
        ids = np.arange(begin * ring.envs, ring.time * ring.envs)
        at = ring.position(ids)
        # what only reset is no part of any
        time, env = np.divmod(ids[ring.last[at] | ~ring.valid[at]], ring.envs)
        ends = self._ends[self._ends % SPAN >= oldest]
        self._ends = np.unique(np.concatenate([ends, env * SPAN + time]))
        self._seen = ring.time
