"""Which rows of a ring to learn from: all alike, or in proportion to their priority.

A sampler looks at its ring when it draws, so that whoever writes to the ring need not know its
samplers.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from tandem.errors import ResumeError, SettingError
from tandem.replay.buffer import Ring
from tandem.replay.priorities import Priorities
from tandem.types import AnyArray, Array, IntArray, JSONDict, State, Trajectory


class Draw(NamedTuple):
    """Rows for K updates of B transitions each."""

    ids: IntArray  # int64 [K, B]: row ids of the ring
    weight: Array = ()  # float32 [K, B]: importance weights; () means all ones


class Sampler(Protocol):
    """What learning needs of a sampler, whichever it is."""

    ring: Ring

    def add(self, trajectory: Trajectory) -> None: ...

    def draw(
        self, rng: np.random.Generator, updates: int, batch_size: int, beta: AnyArray
    ) -> Draw: ...

    def update(self, ids: IntArray, priority: AnyArray) -> None: ...

    def ready(self, batch_size: int) -> bool: ...

    def forget(self, steps: int | None = None) -> None: ...

    def state(self) -> State: ...

    def load_state(self, meta: JSONDict, arrays: dict[str, AnyArray]) -> None: ...


class UniformSampler:
    """Every valid row of the ring alike, with replacement."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring

    def ready(self, batch_size: int) -> bool:
        """Whether there are rows for a batch."""
        return len(self.ring) >= batch_size

    def forget(self, steps: int | None = None) -> None:
        """The ring lets go of its oldest time steps, or of all."""
        self.ring.forget(steps)

    def add(self, trajectory: Trajectory) -> None:
        """Write to the ring."""
        self.ring.add(trajectory)

    def draw(
        self, rng: np.random.Generator, updates: int, batch_size: int, beta: AnyArray | None = None
    ) -> Draw:
        """Rows for `updates` batches; `beta` is not looked at. Rows that may not be learned from
        are drawn anew, so that the generator is asked the more often the more of them there are.

        Raises SettingError where the ring has nothing to draw.
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

    def update(self, ids: IntArray, priority: AnyArray) -> None:
        """Nothing: priorities do not matter here."""

    def state(self) -> State:
        """Nothing: the ring and the generator, which others keep, say it all."""
        return {}, {}

    def load_state(self, meta: JSONDict, arrays: dict[str, AnyArray]) -> None:
        """Nothing to restore."""


class SequenceSampler(UniformSampler):
    """The first rows of sequences of `steps` steps of one environment, all of them in the ring."""

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

    def sequences(self, ids: IntArray) -> IntArray:
        """The rows [..., steps] of the sequences that begin in rows `ids` [...]."""
        return ids[..., None] + np.arange(self.steps) * self.ring.envs

    def _starts(self) -> int:
        """How many rows have that many steps from them on."""
        return self.ring.newest + 1 - self.ring.oldest - (self.steps - 1) * self.ring.envs


class DistinctSampler(UniformSampler):
    """Every valid row alike, and none twice in all the batches of a draw; where the ring has too
    few for that, none twice in a batch; where it has too few even for one, `UniformSampler`'s
    way."""

    def draw(
        self, rng: np.random.Generator, updates: int, batch_size: int, beta: AnyArray | None = None
    ) -> Draw:
        ring, wanted = self.ring, updates * batch_size
        if len(ring) < batch_size:
            return super().draw(rng, updates, batch_size)
        if len(ring) >= wanted:
            at = rng.choice(len(ring), wanted, replace=False)
        else:
            at = np.concatenate(
                [rng.choice(len(ring), batch_size, replace=False) for _ in range(updates)]
            )
        return Draw(self._numbered(at).reshape(updates, batch_size))

    def _numbered(self, at: IntArray) -> IntArray:
        """The ids of the valid rows with these numbers, counted from the oldest."""
        ring = self.ring
        if len(ring) == ring.newest + 1 - ring.oldest:
            return at + ring.oldest
        ids = np.arange(ring.oldest, ring.newest + 1)
        return ids[ring.valid.take(ring.position(ids))][at]


class PassSampler(DistinctSampler):
    """All valid rows in random order, and all again, as often as it takes: every row is drawn as
    often as any other, or once more."""

    def draw(
        self, rng: np.random.Generator, updates: int, batch_size: int, beta: AnyArray | None = None
    ) -> Draw:
        _require_rows(self.ring)
        rows, wanted = len(self.ring), updates * batch_size
        order = np.concatenate([rng.permutation(rows) for _ in range(-(-wanted // rows))])
        return Draw(self._numbered(order[:wanted]).reshape(updates, batch_size))


class PrioritizedSampler:
    """Proportional prioritized replay (Schaul et al. 2016, arXiv:1511.05952, section 3.3 and
    algorithm 1).

    Row i is drawn with probability P(i) = p_i ** alpha / sum_k p_k ** alpha, where p_i = |priority|
    + eps (equation 1). New rows come in with the largest p so far (1 at first), so that each is
    likely to be seen soon.

    alpha: 0 is uniform, 1 fully proportional; 0.6 is the paper's choice (table 3). eps keeps every
    row possible. distinct: no row twice in a batch, as long as the ring has as many.
    """

    def __init__(
        self, ring: Ring, *, alpha: float = 0.6, eps: float = 1e-6, distinct: bool = False
    ) -> None:
        if not (alpha >= 0 and eps > 0):
            raise SettingError(
                f"alpha {alpha}, eps {eps}.",
                "alpha >= 0 and eps > 0",
                "the usual ones are 0.6 and 1e-6.",
            )
        self.ring, self.distinct = ring, distinct
        self._priorities = Priorities(ring.slots * ring.envs, alpha, eps)
        self._seen = 0  # time steps of the ring that have come into the tree

    def ready(self, batch_size: int) -> bool:
        """Whether there are rows for a batch."""
        return len(self.ring) >= batch_size

    def forget(self, steps: int | None = None) -> None:
        """The ring lets go of its oldest time steps, or of all, and their priorities go too."""
        self._catch_up()
        before = self.ring.oldest
        at = self.ring.position(
            np.arange(before, self.ring.newest + 1)
        )  # before they go: positions are of rows in the ring
        self.ring.forget(steps)
        gone = at[: self.ring.oldest - before]
        if gone.size:
            self._priorities.tree.set(gone, np.zeros(gone.size))

    @property
    def powers(self) -> AnyArray:
        """(|priority| + eps) ** alpha of the rows that can be drawn, [len(ring)], the oldest first:
        what draws and effective sample sizes go by."""
        self._catch_up()
        ids = np.arange(self.ring.oldest, self.ring.newest + 1)
        at = self.ring.position(ids)
        return self._priorities.tree.get(at[self.ring.valid.take(at)])

    def add(self, trajectory: Trajectory) -> None:
        """Write to the ring."""
        self.ring.add(trajectory)

    def draw(self, rng: np.random.Generator, updates: int, batch_size: int, beta: AnyArray) -> Draw:
        """Rows and weights for K = `updates` batches; `beta` [K] is the exponent of the correction
        for each.

        Stratified: the j-th row of a batch comes from the j-th of B equal parts of the total
        priority. The weights are (N P(i)) ** -beta divided by the largest of the same batch, so
        that they only ever scale an update down; the largest of the whole buffer, the other usual
        choice, would let one unlikely row, drawn or not, shrink all steps. (Divided so, N and the
        total cancel out.)

        Raises SettingError where the ring has nothing to draw.
        """
        _require_rows(self.ring)
        self._catch_up()
        distinct = self.distinct and batch_size <= len(self.ring)
        at, weight = self._priorities.draw(rng, updates, batch_size, beta, distinct)
        return Draw(self._ids(at), weight)

    def update(self, ids: IntArray, priority: AnyArray) -> None:
        """New priorities [K, B] (errors of any sign) of rows `ids` [K, B]. Of several for one row
        the last wins, in the order of the arrays: that of the latest k. Rows overwritten since they
        were drawn are left out.

        Raises NonFiniteError for NaN or infinite priorities; none is taken in then.
        """
        powers = self._priorities.powers(priority)
        self._catch_up()
        here = self.ring.contains(ids).ravel()
        if here.any():
            self._priorities.set(self.ring.position(ids.ravel()[here]), powers[here])

    def state(self) -> State:
        """(JSON data, arrays) for `load_state`; without the ring, which has its own. Views, good
        until the next change."""
        self._catch_up()
        used = min(self._seen + 1, self.ring.slots) * self.ring.envs if self._seen else 0
        return {"largest": self._priorities.largest, "seen": self._seen}, {
            "priority": self._priorities.tree.leaves[:used]
        }

    def load_state(self, meta: JSONDict, arrays: dict[str, AnyArray]) -> None:
        """Become the sampler whose `state` this was, bit for bit. Load the ring first.

        Raises ResumeError where the priorities belong to another ring.
        """
        used = min(self.ring.time + 1, self.ring.slots) * self.ring.envs if self.ring.time else 0
        priority = arrays["priority"]
        if meta["seen"] != self.ring.time or len(priority) != used:
            raise ResumeError(
                f"the saved priorities are {len(priority)}, of a ring after {meta['seen']} time "
                "steps.",
                f"{used}, after {self.ring.time} time steps, as in the ring here",
                "load the ring and the sampler from one checkpoint, the ring first.",
            )
        self._priorities.load(priority, float(meta["largest"]))
        self._seen = self.ring.time

    def _catch_up(self) -> None:
        """Bring the rows written since the last look into the tree, and take those out that they
        replaced."""
        ring = self.ring
        if self._seen == ring.time:
            return
        first = max(self._seen * ring.envs, ring.oldest)
        new = ring.position(np.arange(first, ring.newest + 1))
        # Besides the slots of the new rows, the one after them was taken, for the observations that
        # follow; and the rows in those after that, which the oldest rows show pictures of, are
        # drawn no more.
        gone = (1 + ring.history) * ring.envs
        head = ring.position(np.arange(ring.newest + 1, ring.newest + 1 + gone))
        powers = np.append(ring.valid.take(new) * self._priorities.largest, np.zeros(gone))
        self._priorities.tree.set(np.concatenate([new, head]), powers)
        self._seen = ring.time

    def _ids(self, at: IntArray) -> IntArray:
        """The ids of the rows at these positions: the only ones there from `oldest` on."""
        rows = self.ring.slots * self.ring.envs
        ids = at + self.ring.oldest // rows * rows
        np.add(ids, rows, out=ids, where=ids < self.ring.oldest)
        return ids


def _require_rows(ring: Ring) -> None:
    if not len(ring):
        raise SettingError(
            "there is nothing to draw: the ring has no row to learn from.",
            "at least one valid row",
            "collect before learning (`learning_starts` of at least one step).",
        )
