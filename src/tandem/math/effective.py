"""The effective sample size of weighted samples, and the number of replay rows to keep by it."""

from __future__ import annotations

import numpy as np

from tandem.errors import SettingError
from tandem.types import Array


def effective_sample_size(weight: Array) -> float:
    """Return the effective sample size 1 / sum p_i ** 2 with p = w / sum w (Kish 1965, "Survey
    Sampling", section 11.7; for importance weights, Kong 1992): n for n equal weights, 1 if a
    single weight is not 0.

    Args:
        weight: w, [n], nonnegative; all zeros count as equal weights.

    Returns:
        A number from 1 to n; 0 without weights.

    Raises:
        SettingError: for weights that are negative or not finite.
    """
    w = np.asarray(weight, np.float64).reshape(-1)
    if not w.size:
        return 0.0
    if not np.isfinite(w).all() or (w < 0).any():
        raise SettingError(
            f"{np.count_nonzero(~np.isfinite(w) | (w < 0))} of {w.size} weights are negative or "
            "not finite.",
            "finite weights of at least 0",
            "take absolute values, or clip ratios; look for exploding losses.",
        )
    largest = w.max()
    if largest == 0:
        return float(w.size)
    w = w / largest  # squares neither overflow nor underflow
    return float(w.sum() ** 2 / (w * w).sum())


def smoothed(old: float | None, new: float, share: float = 0.2) -> float:
    """Return share * new + (1 - share) * old; `new` if there is no old value."""
    return new if old is None else share * new + (1 - share) * old


def rows_to_drop(size: float, rows: int, scale: float = 1.0) -> int:
    """Return the number of oldest rows to drop so that int(size * scale) remain, at least one, and
    fewer than all.

    Args:
        size: Effective sample size of the rows, smoothed or not.
        rows: Number of rows.
        scale: Rows to keep per effective sample.

    Returns:
        The number to drop; 0 for fewer than two rows.
    """
    if rows < 2:
        return 0
    return rows - min(max(int(size * scale), 1), rows - 1)
