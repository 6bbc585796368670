"""A sum tree over NumPy arrays: draw in proportion to priorities, in time logarithmic in their
number."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import numpy as np

from tandem.types import FloatArray, IntArray

# A level of the tree with fewer nodes than this (for each leaf asked for; in all) is computed as a
# whole: that is quicker.
_DENSE, _SMALL = 4, 4096


class SumTree:
    """Priorities >= 0 (finite float64) of `size` leaves, at first all 0, in a binary tree whose
    nodes hold their sums.

    Every inner node is always the sum of its two children, added in that order; so the tree depends
    on its leaves only, and not on the order in which they were set: restoring the leaves restores
    it bit for bit.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._width = 1 << max(0, size - 1).bit_length()
        # node i has children 2 i and 2 i + 1; the leaves come last
        self._nodes: FloatArray = np.zeros(2 * self._width)
        self._before: Callable[[], Before | None] = lambda: None

    def before(self) -> Before:
        """Returns its leaves as they are now, to be asked for later."""
        if (other := self._before()) is not None:
            other.leaves()
        before = Before(self)
        self._before = weakref.ref(before)  # whom nobody will ask needs nothing
        return before

    @property
    def total(self) -> float:
        return float(self._nodes[1])

    @property
    def leaves(self) -> FloatArray:
        """All priorities, a view [size]; to be read only."""
        return self._nodes[self._width : self._width + self.size]

    def get(self, indices: IntArray) -> FloatArray:
        return self.leaves.take(indices)

    def set(self, indices: IntArray, values: FloatArray) -> None:
        """Sets the priorities of leaves `indices` [M]; where one occurs twice, the last counts."""
        if (before := self._before()) is not None:
            before.note(indices)
        nodes = indices + self._width
        self._nodes[nodes] = values
        width = self._width // 2
        while width:  # width is that of the level to sum up next, and also its first node
            if width < max(_SMALL, _DENSE * len(nodes)):
                children = self._nodes[2 * width : 4 * width]
                np.add(children[::2], children[1::2], out=self._nodes[width : 2 * width])
            else:
                nodes = nodes >> 1
                self._nodes[nodes] = self._nodes.take(2 * nodes) + self._nodes.take(2 * nodes + 1)
            width //= 2

    def find(self, values: FloatArray) -> IntArray:
        """Returns, for each of `values` [M] in [0, total), the first leaf i with leaf_0 + ... +
        leaf_i > value. It is never a leaf of priority 0, whatever the rounding of sums. total must
        be positive.
        """
        width = 1
        while 2 * width < min(max(_SMALL, _DENSE * len(values)), self._width):
            width *= 2
        sums = np.cumsum(self._nodes[width : 2 * width])
        # The tree's total and this sum may differ in their last bits: a value must lie below the
        # sum to have a node.
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
    """The leaves of a sum tree as they once were. Until they are asked for, only those that are set
    meanwhile are kept; all of them, once that is as much."""

    def __init__(self, tree: SumTree) -> None:
        self._tree: SumTree | None = tree  # until they are copied
        self._changes: list[tuple[IntArray, FloatArray]] = []
        self._noted = 0  # leaves in them
        self._leaves: FloatArray = np.zeros(0)

    def note(self, indices: IntArray) -> None:
        """These leaves are about to be set."""
        if (tree := self._tree) is not None:
            self._changes.append((indices.copy(), tree.get(indices)))
            self._noted += indices.size
            if self._noted >= tree.size:
                self.leaves()

    def leaves(self) -> FloatArray:
        """Returns them, [size]."""
        if self._tree is not None:
            self._leaves, self._tree = self._tree.leaves.copy(), None
            for indices, values in reversed(self._changes):
                self._leaves[indices] = values
            self._changes = []
        return self._leaves
