"""Samplers of the rows of a ring, uniform or in proportion to priorities.

Data is added to a ring through its sampler, which can assign priorities to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from tandem.errors import ResumeError, SettingError
from tandem.replay.buffer import Ring
from tandem.replay.priorities import Priorities
from tandem.types import AnyArray, Array, IntArray, JSONDict, State, Trajectory


class Draw(NamedTuple):
    """Sampled rows for K updates of B transitions each."""

    ids: IntArray  # int64 [K, B]: row ids of the ring
    weight: Array = ()  # float32 [K, B]: importance weights; () means all ones


class Sampler:
    """Base class of samplers."""

    steps = 1  # length of the sequences that start in the sampled rows

    def __init__(self, ring: Ring) -> None:
        self.ring = ring

    def draw(self, rng: np.random.Generator, updates: int, batch_size: int, beta: AnyArray) -> Draw:
        """Sample row ids [K, B] for K = `updates` batches of B rows. `beta` [K] is the exponent of
        each batch's importance weights."""
        raise NotImplementedError

    def ready(self, batch_size: int) -> bool:
        """Return True if there are enough rows for a batch."""
        return len(self.ring) >= batch_size

    def sequences(self, ids: IntArray) -> IntArray:
        """Return the rows [..., steps] of the sequences that start in rows `ids` [...]."""
        return ids[..., None] + np.arange(self.steps) * self.ring.envs

    def add(self, trajectory: Trajectory) -> None:
        """Add a trajectory to the ring."""
        self.ring.add(trajectory)

    def update(self, ids: IntArray, priority: AnyArray) -> None:
        """Do nothing, since there are no priorities."""

    def forget(self, steps: int | None = None) -> None:
        """Drop the oldest `steps` time steps of the ring; None: all."""
        self.ring.forget(steps)

    def forget_rows(self, count: int, envs: Sequence[int] | None = None) -> None:
        """Drop the `count` oldest rows of the ring, of these environments or of all."""
        self.ring.forget_rows(count, envs)

    def state(self) -> State:
        """Return empty data: the ring and the generator are saved by their owners."""
        return {}, {}

    def load_state(self, meta: JSONDict, arrays: dict[str, AnyArray]) -> None:
        """Do nothing, since there is nothing to restore."""


class UniformSampler(Sampler):
    """Samples valid rows of the ring uniformly, with replacement."""

    def draw(
        self, rng: np.random.Generator, updates: int, batch_size: int, beta: AnyArray | None = None
    ) -> Draw:
        """Sample row ids [updates, batch_size]; `beta` is not used. Invalid rows are resampled, so
        the number of random numbers used depends on the number of invalid rows.

        Raises SettingError if the ring has no valid row.
        """
        ring = self.ring
        _require_rows(ring)
        low, high = ring.oldest, ring.newest + 1
        ids: IntArray = rng.integers(low, high, (updates, batch_size))
        if len(ring) < high - low:
            flat = ids.reshape(-1)
            refused = np.flatnonzero(~ring.valid.take(ring.position(flat)))
            while refused.size:
                again = rng.integers(low, high, refused.size)
                flat[refused] = again
                refused = refused[~ring.valid.take(ring.position(again))]
        return Draw(ids)


class SequenceSampler(UniformSampler):
    """Samples the first rows of sequences of `steps` steps of one environment that are entirely in
    the ring."""

    def __init__(self, ring: Ring, steps: int) -> None:
        super().__init__(ring)
        self.steps = steps

    def ready(self, batch_size: int) -> bool:
        return self._starts() > 0

    def draw(
        self, rng: np.random.Generator, updates: int, batch_size: int, beta: AnyArray | None = None
    ) -> Draw:
        _require_rows(self.ring)
        return Draw(
            rng.integers(self.ring.oldest, self.ring.oldest + self._starts(), (updates, batch_size))
        )

    def _starts(self) -> int:
        """Return the number of rows in which a sequence can start."""
        return self.ring.newest + 1 - self.ring.oldest - (self.steps - 1) * self.ring.envs


class DistinctSampler(UniformSampler):
    """Samples valid rows uniformly, without replacement across all batches of a call. If the ring
    has too few rows for that, sampling is without replacement within each batch; if it has fewer
    rows than a batch, with replacement."""

    def draw(
        self, rng: np.random.Generator, updates: int, batch_size: int, beta: AnyArray | None = None
    ) -> Draw:
        rows, total = len(self.ring), updates * batch_size
        if rows < batch_size:
            return super().draw(rng, updates, batch_size)
        if rows >= total:
            ranks = rng.choice(rows, total, replace=False)
        else:
            batches = [rng.choice(rows, batch_size, replace=False) for _ in range(updates)]
            ranks = np.concatenate(batches)
        return Draw(self._ids(ranks).reshape(updates, batch_size))

    def _ids(self, ranks: IntArray) -> IntArray:
        """Return the ids of the valid rows with these ranks by age; 0 is the oldest."""
        ring = self.ring
        if len(ring) == ring.newest + 1 - ring.oldest:
            return ranks + ring.oldest
        return ring.rows()[ranks]


class PassSampler(DistinctSampler):
    """Samples by passes over all valid rows, each in random order; the last pass ends when the
    batches are full. The numbers of times that any two rows are sampled differ by at most one."""

    def draw(
        self, rng: np.random.Generator, updates: int, batch_size: int, beta: AnyArray | None = None
    ) -> Draw:
        _require_rows(self.ring)
        rows, total = len(self.ring), updates * batch_size
        order = np.concatenate([rng.permutation(rows) for _ in range(-(-total // rows))])
        return Draw(self._ids(order[:total]).reshape(updates, batch_size))


class PrioritizedSampler(Sampler):
    """Proportional prioritized replay (Schaul et al. 2016, arXiv:1511.05952, section 3.3 and
    algorithm 1).

    Row i is sampled with probability P(i) = p_i ** alpha / sum_k p_k ** alpha, where p_i =
    |priority| + eps (equation 1). A new row gets the largest p so far (initially 1), so that it is
    likely to be sampled soon.

    Args:
        ring: The ring to sample from.
        alpha: 0 is uniform, 1 fully proportional; 0.6 is the paper's choice (table 3).
        eps: Must be above 0, so that every row can be sampled.
        distinct: Sample without replacement within a batch, if the ring has enough rows.
        steps: Length of the sequences that start in the sampled rows (Kapturowski et al. 2019,
            section 2.3). A row can be sampled once its whole sequence is in the ring, and
            priorities are those of sequences.
    """

    def __init__(
        self,
        ring: Ring,
        *,
        alpha: float = 0.6,
        eps: float = 1e-6,
        distinct: bool = False,
        steps: int = 1,
    ) -> None:
        if not (alpha >= 0 and eps > 0):
            raise SettingError(
                f"alpha={alpha}, eps={eps}.",
                "alpha >= 0 and eps > 0",
                "try alpha=0.6, eps=1e-6, the usual values.",
            )
        super().__init__(ring)
        self.distinct, self.steps = distinct, steps
        self._priorities = Priorities(ring.slots * ring.envs, alpha, eps)
        self._seen = 0  # time steps of the ring that the tree includes

    def ready(self, batch_size: int) -> bool:
        """Return True if there are enough rows for a batch, or at least one sequence."""
        if self.steps == 1:
            return super().ready(batch_size)
        self._catch_up()
        return self._priorities.tree.total > 0

    def forget(self, steps: int | None = None) -> None:
        """Drop the oldest `steps` time steps of the ring, or all, with their priorities."""
        self._catch_up()
        oldest = self.ring.oldest
        # Compute positions before dropping: they are defined only for rows in the ring.
        positions = self.ring.position(np.arange(oldest, self.ring.newest + 1))
        self.ring.forget(steps)
        dropped = positions[: self.ring.oldest - oldest]
        if dropped.size:
            self._priorities.tree.set(dropped, np.zeros(dropped.size))

    def forget_rows(self, count: int, envs: Sequence[int] | None = None) -> None:
        """Drop the `count` oldest rows of the ring, of these environments or of all, with their
        priorities."""
        self._catch_up()
        at = self.ring.forget_rows(count, envs)
        if at.size:
            self._priorities.tree.set(at, np.zeros(at.size))

    def powers(self, envs: Sequence[int] | None = None) -> AnyArray:
        """Return (|priority| + eps) ** alpha of the valid rows, of these environments or of all,
        oldest first. Sampling probabilities are proportional to it."""
        self._catch_up()
        return self._priorities.tree.get(self.ring.position(self.ring.rows(envs)))

    def present_powers(self) -> Callable[[], AnyArray]:
        """Return a function that, when called later, returns the present result of `powers`. It
        costs little until then."""
        self._catch_up()
        first, rows = int(self.ring.position(np.array([self.ring.oldest]))[0]), len(self.ring)
        before = self._priorities.tree.before()

        def powers() -> AnyArray:
            leaves = np.roll(before.leaves(), -first)  # oldest first
            positive = leaves[leaves > 0]  # invalid rows have 0
            return positive if positive.size else np.zeros(rows)

        return powers

    def draw(self, rng: np.random.Generator, updates: int, batch_size: int, beta: AnyArray) -> Draw:
        """Sample row ids and importance weights, both [K, B], for K = `updates` batches of B rows;
        `beta` [K] is the exponent of each batch's weights.

        Sampling is stratified: the j-th row of a batch is sampled from the j-th of B equal parts of
        the total priority. The weights are (N P(i)) ** -beta divided by the largest in the same
        batch, so that they only scale an update down. (The other usual choice, dividing by the
        largest in the whole buffer, lets one unlikely row shrink all updates, sampled or not.)

        Raises SettingError if the ring has no valid row.
        """
        _require_rows(self.ring)
        self._catch_up()
        distinct = self.distinct and batch_size <= len(self.ring)
        positions, weight = self._priorities.draw(rng, updates, batch_size, beta, distinct)
        return Draw(self._ids(positions), weight)

    def update(self, ids: IntArray, priority: AnyArray) -> None:
        """Set new priorities [K, B] (errors of any sign) of rows `ids` [K, B]. For repeated rows
        the last priority wins, which is that of the latest batch. Rows overwritten since they were
        sampled are skipped.

        Raises NonFiniteError for NaN or infinite priorities, and then sets none.
        """
        powers = self._priorities.powers(priority)
        self._catch_up()
        present = self.ring.contains(ids).ravel()
        if present.any():
            self._priorities.set(self.ring.position(ids.ravel()[present]), powers[present])

    def state(self) -> State:
        """Return (JSON data, arrays) for `load_state`, without the ring, which has its own. The
        arrays are views, valid until the next change."""
        self._catch_up()
        used = self.ring.used_slots(self._seen) * self.ring.envs
        meta = {"largest": self._priorities.largest, "seen": self._seen}
        return meta, {"priority": self._priorities.tree.leaves[:used]}

    def load_state(self, meta: JSONDict, arrays: dict[str, AnyArray]) -> None:
        """Restore the sampler whose `state` this was, bit for bit. Load the ring first.

        Raises ResumeError if the priorities belong to another ring.
        """
        used = self.ring.used_slots(self.ring.time) * self.ring.envs
        priority = arrays["priority"]
        if meta["seen"] != self.ring.time or len(priority) != used:
            raise ResumeError(
                f"the saved priorities have {len(priority)} entries, of a ring after "
                f"{meta['seen']} time steps.",
                f"{used}, after {self.ring.time} time steps, as in the ring here",
                "load the ring and the sampler from one checkpoint, the ring first.",
            )
        self._priorities.load(priority, float(meta["largest"]))
        self._seen = self.ring.time

    def _catch_up(self) -> None:
        """Add the rows written since the last call to the tree, if their sequences are complete,
        and remove the overwritten ones."""
        ring, waiting = self.ring, (self.steps - 1) * self.ring.envs
        if self._seen == ring.time:
            return
        first = max(self._seen * ring.envs - waiting, ring.oldest)
        whole = max(ring.newest + 1 - waiting, first)
        new = ring.position(np.arange(first, whole))
        # The slot after the new rows holds the observations after them, and the following slots
        # hold the history of the oldest rows: none of these slots can be sampled.
        end = ring.newest + 1 + (1 + ring.history) * ring.envs
        after = ring.position(np.arange(whole, end))
        powers = np.append(ring.valid.take(new) * self._priorities.largest, np.zeros(len(after)))
        self._priorities.tree.set(np.concatenate([new, after]), powers)
        self._seen = ring.time

    def _ids(self, positions: IntArray) -> IntArray:
        """Return the ids of the rows at these positions."""
        rows = self.ring.slots * self.ring.envs
        ids = positions + self.ring.oldest // rows * rows
        np.add(ids, rows, out=ids, where=ids < self.ring.oldest)
        return ids


def _require_rows(ring: Ring) -> None:
    if not len(ring):
        raise SettingError(
            "there is nothing to sample: the ring has no valid row.",
            "at least one valid row",
            "collect before learning: set `learning_starts` to at least one step.",
        )
