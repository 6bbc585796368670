"""Running mean and variance."""

from __future__ import annotations

import numpy as np

from tandem.errors import same_shape
from tandem.types import Array


class Moments:
    """Mean and variance [width], in float64, of all rows so far, merged batch by batch (Chan, Golub
    & LeVeque 1979, "Updating formulae and a pairwise algorithm for computing sample variances", eq.
    2.1). Before the first row they are 0 and 1."""

    def __init__(self, width: int) -> None:
        self.mean, self.variance, self.count = np.zeros(width), np.ones(width), 0.0

    def add(self, rows: Array) -> None:
        """Takes in rows [M, width]; none (M = 0) change nothing. Raises SpaceError for another
        shape."""
        same_shape("rows", rows, (-1, *self.mean.shape))
        if not len(rows):
            return
        x = rows.astype(np.float64)
        mean, variance, count = x.mean(0), x.var(0), float(len(x))
        total, gap = self.count + count, mean - self.mean
        squares = (
            self.variance * self.count + variance * count + gap**2 * self.count * count / total
        )
        self.mean = self.mean + gap * count / total
        self.variance = squares / total
        self.count = total

    def state(self) -> dict[str, Array]:
        """Returns the arrays that `load_state` needs."""
        return {"mean": self.mean, "variance": self.variance, "count": np.array(self.count)}

    def load_state(self, state: dict[str, Array]) -> None:
        """Goes on from what `state` returned."""
        self.mean = state["mean"].copy()
        self.variance = state["variance"].copy()
        self.count = float(state["count"])
