"""How many samples unequal weights are worth, and how much of a replay buffer is worth keeping for
that."""

from __future__ import annotations

import numpy as np

from tandem.errors import SettingError
from tandem.types import Array


def effective_sample_size(weight: Array) -> float:
    """1 / sum p_i ** 2 with p = w / sum w (Kish 1965, "Survey Sampling", section 11.7; for
    importance weights, Kong 1992): n for n equal weights, 1 where one weight is all. Weights [n] >=
    0; all zeros count as equal ones; 0 for none.

    Raises SettingError for weights that are negative or not finite.
    """
    w = np.asarray(weight, np.float64).reshape(-1)
    if not w.size:
        return 0.0
    if not np.isfinite(w).all() or (w < 0).any():
        raise SettingError(
            f"{np.count_nonzero(~np.isfinite(w) | (w < 0))} of {w.size} weights are negative or "
            "not finite.",
            "weights from 0 on",
            "take absolute values, or clip ratios; look for exploding losses.",
        )
    largest = w.max()
    if largest == 0:
        return float(w.size)
    w = w / largest  # squares neither overflow nor vanish
    return float(w.sum() ** 2 / (w * w).sum())


def smoothed(old: float | None, new: float, share: float = 0.2) -> float:
    """share * new + (1 - share) * old; the first value is new."""
    return new if old is None else share * new + (1 - share) * old


def rows_to_drop(size: float, rows: int, scale: float = 1.0) -> int:
    """How many of the oldest of `rows` to let go of, so that int(size * scale) stay, one at least
    and not all of them; 0 for fewer than two rows. `size` is an effective sample size, smoothed or
    not."""
    if rows < 2:
        return 0
    return rows - min(max(int(size * scale), 1), rows - 1)
