"""Priorities of numbered slots, and draws in proportion to them (Schaul et al. 2016,
arXiv:1511.05952, section 3.3)."""

from __future__ import annotations

import numpy as np

from tandem.errors import NonFiniteError
from tandem.replay.sumtree import SumTree
from tandem.types import AnyArray, IntArray


class Priorities:
    """p ** alpha of each slot, p = |priority| + eps (equation 1), and the largest so far, which new
    ones come in with."""

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
        """Slots, and their importance weights, [K, B] both: the j-th of a batch comes from the j-th
        of B equal parts of the total, and weighs (N P(i)) ** -beta divided by the largest of its
        batch; beta [K]. With `distinct` what a batch has already is drawn anew, from the rest; B
        slots have to have priorities then."""
        part = (np.arange(batch_size) + rng.random((updates, batch_size))) / batch_size
        at = self.tree.find(part.ravel() * self.tree.total).reshape(updates, batch_size)
        if distinct:
            for slots in at:
                self._without_repeats(rng, slots)
        p = self.tree.get(at)
        weight = (p.min(axis=1, keepdims=True) / p) ** np.broadcast_to(beta, updates)[:, None]
        return at, weight.astype(np.float32)

    def _without_repeats(self, rng: np.random.Generator, slots: IntArray) -> None:
        """Replaces what occurs again in `slots` [B], in place, by draws from the slots that do not
        occur."""
        taken, first = np.unique(slots, return_index=True)
        todo = np.delete(np.arange(len(slots)), first)
        if not todo.size:
            return
        before = self.tree.get(taken)
        self.tree.set(taken, np.zeros(len(taken)))
        while todo.size:
            found = self.tree.find(rng.random(todo.size) * self.tree.total)
            new, first = np.unique(found, return_index=True)
            slots[todo[first]] = new
            taken, before = np.append(taken, new), np.append(before, self.tree.get(new))
            self.tree.set(new, np.zeros(len(new)))
            todo = np.delete(todo, first)
        self.tree.set(taken, before)

    def powers(self, priority: AnyArray) -> AnyArray:
        """p ** alpha, flat, of new priorities of any sign. NonFiniteError for NaN or infinite
        ones."""
        p = np.abs(np.asarray(priority, np.float64)).ravel()
        if not np.isfinite(p).all():
            raise NonFiniteError(
                f"{np.count_nonzero(~np.isfinite(p))} of {p.size} new priorities are NaN or "
                "infinite.",
                "finite ones, such as absolute TD errors",
                "look for exploding losses or rewards; a smaller learning rate or clipped "
                "gradients may help.",
            )
        powers: AnyArray = (p + self.eps) ** self.alpha
        return powers

    def set(self, slots: IntArray, powers: AnyArray) -> None:
        """Puts new `powers` into slots; of several for one slot the last wins."""
        self.largest = max(self.largest, float(powers.max()))
        self.tree.set(slots, powers)

    def load(self, powers: AnyArray, largest: float) -> None:
        """Becomes what had these in its first slots."""
        self.tree = SumTree(self.tree.size)
        self.tree.set(np.arange(len(powers)), powers)
        self.largest = largest
