"""Triplets of steps i < k < j of one trajectory, for temporal relations: the transitions from i to
k and from k to j."""

from __future__ import annotations

import numpy as np

from tandem.errors import SettingError
from tandem.replay.buffer import Ring
from tandem.replay.episodes import EpisodeBounds
from tandem.replay.samplers import Draw, Sampler
from tandem.types import AnyArray, Batch, IntArray, JSONDict, Tree, tree_map


class TripletSampler(Sampler):
    """Samples steps i < k < j of finished episodes in a ring: uniformly over episodes of at least
    three steps, and over the triplets of their steps. The step that terminated an episode is left
    out if the observation after it is not known (`EpisodeBounds.known`)."""

    def __init__(self, ring: Ring) -> None:
        super().__init__(ring)
        self.episodes = EpisodeBounds(ring)

    def ready(self, batch_size: int) -> bool:
        """Return True if there are enough rows for a batch, and an episode to sample from."""
        return super().ready(batch_size) and bool((self._lengths()[1] >= 3).any())

    def load_state(self, meta: JSONDict, arrays: dict[str, AnyArray]) -> None:
        """Rescan the ring for the ends of episodes."""
        self.episodes = EpisodeBounds(self.ring)

    def _lengths(self) -> tuple[IntArray, IntArray]:
        """Return (first rows, numbers of steps) of the finished episodes."""
        first, last = self.episodes.finished()
        return first, (self.episodes.known(last) - first) // self.ring.envs + 1

    def draw(
        self, rng: np.random.Generator, updates: int, batch_size: int, beta: AnyArray | None = None
    ) -> Draw:
        """Sample row ids [K, B, 3], increasing in each triplet. Raise SettingError if no finished
        episode is long enough."""
        n, count = self.ring.envs, updates * batch_size
        first, length = self._lengths()
        long = np.flatnonzero(length >= 3)
        if not long.size:
            raise SettingError(
                f"none of the {len(length)} finished episodes in the replay buffer has three "
                "steps or more.",
                "at least one",
                "collect more before sampling, or give the buffer a larger capacity.",
            )
        chosen = long[rng.integers(len(long), size=count)]
        a, b, c = (
            (rng.random((count, 3)) * (length[chosen][:, None] - [0, 1, 2])).astype(np.int64).T
        )
        b += b >= a  # the b-th of the steps other than a
        low, high = np.minimum(a, b), np.maximum(a, b)
        c += c >= low
        c += c >= high
        steps = np.sort(np.stack([low, high, c], 1), 1)
        return Draw((first[chosen][:, None] + n * steps).reshape(updates, batch_size, 3))

    def transitions(self, ids: IntArray) -> Batch:
        """Return the two halves of each triplet of `ids` [..., B, 3], as [..., B, 2, *their own]:
        from the observation at i to the one after k, and from the one after k to the one after j.
        Actions, rewards and discounts are those of i and k."""
        batch = self.ring.transitions(ids)
        axis = ids.ndim - 1

        def joined(at: Tree, after: Tree) -> Tree:
            return np.concatenate([at.take([0], axis), after.take([1], axis)], axis)

        obs = tree_map(joined, batch.obs, batch.next_obs)
        next_obs = tree_map(lambda x: x.take([1, 2], axis), batch.next_obs)
        halves: Batch = tree_map(lambda x: x.take([0, 1], axis), batch)
        return halves._replace(obs=obs, next_obs=next_obs)
