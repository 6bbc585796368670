"""Triplets of steps of one trajectory, for temporal relations: what leads from i to k, and what from k on to j."""

from __future__ import annotations

import numpy as np

from tandem.errors import SettingError
from tandem.replay.buffer import IntArray, Ring
from tandem.replay.episodes import Episodes
from tandem.types import Batch, tree_map


class TripletSampler:
    """Draws steps i < k < j of finished episodes of a ring: each episode alike that has three steps or more, and each three
    of its steps. The step that terminated an episode is left out, since what was seen after it is not kept."""

    def __init__(self, ring: Ring) -> None:
        self.ring, self.episodes = ring, Episodes(ring)

    def draw(self, rng: np.random.Generator, batch_size: int) -> IntArray:
        """Row ids [B, 3], rising in each row. Raises SettingError where no episode is finished that is long enough."""
        n = self.ring.envs
        first, last = self.episodes.finished()
        length = (self.episodes.known(last) - first) // n + 1
        long = np.flatnonzero(length >= 3)
        if not long.size:
            raise SettingError(
                f"there are {len(length)} finished episodes in the replay buffer, none of them of three steps or more.",
                "one at least",
                "collect more before you draw, or give the buffer a larger capacity.",
            )
        chosen = long[rng.integers(len(long), size=batch_size)]
        a, b, c = (rng.random((batch_size, 3)) * (length[chosen][:, None] - [0, 1, 2])).astype(np.int64).T
        b += b >= a  # of the steps but a, the b-th
        low, high = np.minimum(a, b), np.maximum(a, b)
        c += c >= low
        c += c >= high
        steps = np.sort(np.stack([low, high, c], 1), 1)
        ids: IntArray = first[chosen][:, None] + n * steps
        return ids

    def transitions(self, ids: IntArray) -> Batch:
        """The two halves of each triplet, [B, 2, ...]: from the observation at i to what followed k, and from what followed k
        to what followed j; actions, rewards and discounts are those of i and k."""
        batch = self.ring.transitions(ids)
        i, k = [0, 1], [1, 2]
        from_i = tree_map(lambda x: x[:, :1], batch.obs)
        after_k = tree_map(lambda x: x[:, 1:2], batch.next_obs)
        obs = tree_map(lambda a, b: np.concatenate([a, b], 1), from_i, after_k)
        return Batch(
            obs,
            batch.action[:, i],
            batch.reward[:, i],
            batch.discount[:, i],
            tree_map(lambda x: x[:, k], batch.next_obs),
        )
