"""Priorities of numbered slots, and draws in proportion to them (Schaul et al. 2016, arXiv:1511.05952, section 3.3)."""

from __future__ import annotations

from typing import Any

import numpy as np

from tandem.errors import NonFiniteError
from tandem.replay.sumtree import SumTree

AnyArray = np.ndarray[Any, Any]
IntArray = np.ndarray[Any, np.dtype[np.int64]]


class Priorities:
    """p ** alpha of each slot, p = |priority| + eps (equation 1), and the largest so far, which new ones come in with."""

    def __init__(self, size: int, alpha: float, eps: float) -> None:
        self.alpha, self.eps, self.largest = alpha, eps, 1.0
        self.tree = SumTree(size)

    def draw(self, rng: np.random.Generator, updates: int, batch_size: int, beta: AnyArray) -> tuple[IntArray, AnyArray]:
        """Slots, and their importance weights, [K, B] both: the j-th of a batch comes from the j-th of B equal parts of the
        total, and weighs (N P(i)) ** -beta divided by the largest of its batch; beta [K]."""
        part = (np.arange(batch_size) + rng.random((updates, batch_size))) / batch_size
        at = self.tree.find(part.ravel() * self.tree.total).reshape(updates, batch_size)
        p = self.tree.get(at)
        weight = (p.min(axis=1, keepdims=True) / p) ** np.broadcast_to(beta, updates)[:, None]
        return at, weight.astype(np.float32)

    def powers(self, priority: AnyArray) -> AnyArray:
        """p ** alpha, flat, of new priorities of any sign. NonFiniteError for NaN or infinite ones."""
        p = np.abs(np.asarray(priority, np.float64)).ravel()
        if not np.isfinite(p).all():
            raise NonFiniteError(
                f"{np.count_nonzero(~np.isfinite(p))} of {p.size} new priorities are NaN or infinite.",
                "finite ones, such as absolute TD errors",
                "look for exploding losses or rewards; a smaller learning rate or clipped gradients may help.",
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
