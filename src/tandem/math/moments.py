"""Running mean and variance."""

from __future__ import annotations

import numpy as np

from tandem.types import Array


class Moments:
    """Mean and variance of all rows seen, merged batch by batch (Chan et al. 1979, eq. 2.1), in
    float64."""

    def __init__(self, width: int) -> None:
        self.mean, self.variance, self.count = np.zeros(width), np.ones(width), 0.0

    def add(self, rows: Array) -> None:
        """rows [M, width]."""
        if not len(rows):
            return
        x = rows.astype(np.float64)
        mean, variance, count = x.mean(0), x.var(0), float(len(x))
        total, gap = self.count + count, mean - self.mean
        squares = (
            self.variance * self.count + variance * count + gap**2 * self.count * count / total
        )
        self.mean, self.variance, self.count = (
            self.mean + gap * count / total,
            squares / total,
            total,
        )

    def state(self) -> dict[str, Array]:
        return {"mean": self.mean, "variance": self.variance, "count": np.array(self.count)}

    def load_state(self, state: dict[str, Array]) -> None:
        self.mean, self.variance, self.count = (
            state["mean"].copy(),
            state["variance"].copy(),
            float(state["count"]),
        )
