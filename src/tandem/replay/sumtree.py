"""A sum tree over NumPy arrays, for sampling in proportion to priorities in time logarithmic in
their number."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import numpy as np

from tandem.types import FloatArray, IntArray

# Levels of the tree with fewer nodes than this (per requested leaf; in total) are computed as a
# whole, which is faster.
_DENSE, _SMALL = 4, 4096


class SumTree:
    """Priorities >= 0 (finite float64) of `size` leaves, initially all 0, in a binary tree whose
    nodes hold their sums.

    Every inner node is the sum of its two children, added in that order. The tree therefore depends
    only on its leaves, not on the order in which they were set, and restoring the leaves restores
    the tree bit for bit.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._width = 1 << max(0, size - 1).bit_length()
        # node i has children 2 i and 2 i + 1; the leaves come last
        self._nodes: FloatArray = np.zeros(2 * self._width)
        self._before: Callable[[], Before | None] = lambda: None

    def before(self) -> Before:
        """Return an object that gives access to the current leaves later."""
        if (other := self._before()) is not None:
            other.leaves()
        before = Before(self)
        self._before = weakref.ref(before)  # an unreferenced snapshot needs no updates
        return before

    @property
    def total(self) -> float:
        return float(self._nodes[1])

    @property
    def leaves(self) -> FloatArray:
        """All priorities, a view [size]; do not write to it."""
        return self._nodes[self._width : self._width + self.size]

    def get(self, indices: IntArray) -> FloatArray:
        return self.leaves.take(indices)

    def set(self, indices: IntArray, values: FloatArray) -> None:
        """Set the priorities of leaves `indices` [M]; for repeated indices the last wins."""
        if (before := self._before()) is not None:
            before.note(indices)
        nodes = indices + self._width
        self._nodes[nodes] = values
        width = self._width // 2
        while width:  # width of the next level to sum, and also its first node
            if width < max(_SMALL, _DENSE * len(nodes)):
                children = self._nodes[2 * width : 4 * width]
                np.add(children[::2], children[1::2], out=self._nodes[width : 2 * width])
            else:
                nodes = nodes >> 1
                self._nodes[nodes] = self._nodes.take(2 * nodes) + self._nodes.take(2 * nodes + 1)
            width //= 2

    def find(self, values: FloatArray) -> IntArray:
        """Return, for each of `values` [M] in [0, total), the first leaf i with leaf_0 + ... +
        leaf_i > value. It never has priority 0, regardless of rounding. total must be positive.
        """
        width = 1
        while 2 * width < min(max(_SMALL, _DENSE * len(values)), self._width):
            width *= 2
        sums = np.cumsum(self._nodes[width : 2 * width])
        # The tree's total and this sum can differ in their last bits; values must be below the sum
        # to have a node.
        rest = np.minimum(values, np.nextafter(sums[-1], 0.0))
        nodes: IntArray = np.searchsorted(sums, rest, side="right")
        rest = np.maximum(rest - np.where(nodes > 0, sums[nodes - 1], 0.0), 0.0)
        nodes += width
        pairs = self._nodes.reshape(-1, 2)
        while width < self._width:
            pair = pairs.take(nodes, axis=0)
            left = pair[:, 0]
            right = (rest >= left) & (pair[:, 1] > 0)
            rest -= left * right
            nodes = 2 * nodes + right
            width *= 2
        return nodes - self._width


class Before:
    """A snapshot of the leaves of a sum tree. Until it is read, it stores only the old values of
    leaves set since, or a full copy once that is not larger."""

    def __init__(self, tree: SumTree) -> None:
        self._tree: SumTree | None = tree  # until the leaves are copied
        self._changes: list[tuple[IntArray, FloatArray]] = []
        self._noted = 0  # number of leaves in them
        self._leaves: FloatArray = np.zeros(0)

    def note(self, indices: IntArray) -> None:
        """Save the values of leaves that are about to be set."""
        if (tree := self._tree) is not None:
            self._changes.append((indices.copy(), tree.get(indices)))
            self._noted += indices.size
            if self._noted >= tree.size:
                self.leaves()

    def leaves(self) -> FloatArray:
        """Return the leaves of the snapshot, [size]."""
        if self._tree is not None:
            self._leaves, self._tree = self._tree.leaves.copy(), None
            for indices, values in reversed(self._changes):
                self._leaves[indices] = values
            self._changes = []
        return self._leaves
