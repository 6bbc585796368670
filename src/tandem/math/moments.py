"""Running mean and variance."""

from __future__ import annotations

import numpy as np

from tandem import ops
from tandem.errors import same_shape
from tandem.types import Array


def merged(mean: Array, variance: Array, count: Array, rows: Array) -> tuple[Array, Array, Array]:
    """Return (mean, variance, count) of previous data with these moments and of rows [M, width]
    together (Chan, Golub & LeVeque 1979, eq. 2.1). Works on arrays of any backend, at their
    precision."""
    xp, added = ops.of(rows), float(rows.shape[0])
    if not added:
        return mean, variance, count
    new = xp.mean(rows, 0)
    total, gap = count + added, new - mean
    squares = variance * count + xp.sum((rows - new) ** 2, 0) + gap**2 * count * added / total
    return mean + gap * added / total, squares / total, total


class Moments:
    """Mean and variance [width], in float64, of all rows so far, merged batch by batch (Chan, Golub
    & LeVeque 1979, "Updating formulae and a pairwise algorithm for computing sample variances", eq.
    2.1). Before the first row they are 0 and 1."""

    def __init__(self, width: int) -> None:
        self.mean, self.variance, self.count = np.zeros(width), np.ones(width), 0.0

    def add(self, rows: Array) -> None:
        """Add rows [M, width]; M = 0 changes nothing. Raises SpaceError for another shape."""
        same_shape("rows", rows, (-1, *self.mean.shape))
        self.mean, self.variance, self.count = merged(
            self.mean, self.variance, self.count, rows.astype(np.float64)
        )

    def state(self) -> dict[str, Array]:
        """Return the arrays that `load_state` needs."""
        return {"mean": self.mean, "variance": self.variance, "count": np.array(self.count)}

    def load_state(self, state: dict[str, Array]) -> None:
        """Restore the result of `state`."""
        self.mean = state["mean"].copy()
        self.variance = state["variance"].copy()
        self.count = float(state["count"])
