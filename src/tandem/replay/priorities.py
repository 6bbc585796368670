"""Priorities of numbered slots, and sampling in proportion to them (Schaul et al. 2016,
arXiv:1511.05952, section 3.3)."""

from __future__ import annotations

import numpy as np

from tandem.errors import NonFiniteError
from tandem.replay.sumtree import SumTree
from tandem.types import AnyArray, IntArray

_AT_ONCE = 2**19  # powers read from a file at once


class Priorities:
    """p ** alpha of each of `size` slots, where p = |priority| + eps (equation 1), and the largest
    value so far, which is assigned to new slots."""

    def __init__(self, size: int, alpha: float, eps: float) -> None:
        self.alpha, self.eps, self.largest = alpha, eps, 1.0
        self.tree = SumTree(size)

    def draw(
        self,
        rng: np.random.Generator,
        updates: int,
        batch_size: int,
        beta: AnyArray,
        distinct: bool = False,
    ) -> tuple[IntArray, AnyArray]:
        """Return (slots, importance weights), both [K, B]. The j-th slot of a batch is sampled from
        the j-th of B equal parts of the total. Its weight is (N P(i)) ** -beta divided by the
        largest in its batch. beta: [K]. With `distinct`, repeated slots in a batch are resampled
        from the others; then at least B slots must have priorities."""
        part = (np.arange(batch_size) + rng.random((updates, batch_size))) / batch_size
        slots = self.tree.find(part.ravel() * self.tree.total).reshape(updates, batch_size)
        if distinct:
            for batch in slots:
                self._without_repeats(rng, batch)
        p = self.tree.get(slots)
        weight = (p.min(axis=1, keepdims=True) / p) ** np.broadcast_to(beta, updates)[:, None]
        return slots, weight.astype(np.float32)

    def _without_repeats(self, rng: np.random.Generator, slots: IntArray) -> None:
        """Resample every repeated slot in `slots` [B], in place, from the slots not in it."""
        taken, first = np.unique(slots, return_index=True)
        todo = np.delete(np.arange(len(slots)), first)
        if not todo.size:
            return
        before = self.tree.get(taken)
        self.tree.set(taken, np.zeros(len(taken)))
        while todo.size:
            drawn = self.tree.find(rng.random(todo.size) * self.tree.total)
            new, first = np.unique(drawn, return_index=True)
            slots[todo[first]] = new
            taken, before = np.append(taken, new), np.append(before, self.tree.get(new))
            self.tree.set(new, np.zeros(len(new)))
            todo = np.delete(todo, first)
        self.tree.set(taken, before)

    def powers(self, priority: AnyArray) -> AnyArray:
        """Return p ** alpha of new priorities of any sign, flattened. Raise NonFiniteError for NaN
        or infinite priorities."""
        p = np.abs(np.asarray(priority, np.float64)).ravel()
        if not np.isfinite(p).all():
            raise NonFiniteError(
                f"{np.count_nonzero(~np.isfinite(p))} of {p.size} new priorities are NaN or "
                "infinite.",
                "finite priorities, such as absolute TD errors",
                "check for exploding losses or rewards; try a smaller learning rate or clipped "
                "gradients.",
            )
        return (p + self.eps) ** self.alpha

    def set(self, slots: IntArray, powers: AnyArray) -> None:
        """Set the powers [M] of slots [M]; for repeated slots the last value wins."""
        self.largest = max(self.largest, float(powers.max()))
        self.tree.set(slots, powers)

    def load(self, powers: AnyArray, largest: float) -> None:
        """Reset to these powers in the first slots, and 0 in the others."""
        self.tree = SumTree(self.tree.size)
        for at in range(0, len(powers), _AT_ONCE):
            part = np.asarray(powers[at : at + _AT_ONCE])
            self.tree.set(np.arange(at, at + len(part)), part)
        self.largest = largest
