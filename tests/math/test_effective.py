from __future__ import annotations

import numpy as np
import pytest

from tandem.errors import SettingError
from tandem.math.effective import effective_sample_size, rows_to_drop, smoothed


@pytest.mark.parametrize(
    ("weight", "size"),
    [
        ([0.3] * 7, 7),
        ([0.0, 5.0, 0.0], 1),
        ([0.0] * 4, 4),
        ([], 0),
        ([1.0, 2.0, 3.0], 36 / 14),
        ([1e300, 2e300, 3e300], 36 / 14),
        ([1e-300, 2e-300, 3e-300], 36 / 14),
    ],
)
def test_sizes(weight: list[float], size: float) -> None:
    assert effective_sample_size(weight) == pytest.approx(size)


@pytest.mark.parametrize("bad", [-1.0, np.nan, np.inf])
def test_other_weights_are_refused(bad: float) -> None:
    with pytest.raises(SettingError, match="1 of 3 weights"):
        effective_sample_size([1.0, bad, 1.0])


def test_smoothing_begins_with_the_first() -> None:
    assert smoothed(None, 10.0) == 10.0
    assert smoothed(10.0, 20.0) == pytest.approx(12.0) and smoothed(10.0, 20.0, 1.0) == 20.0


@pytest.mark.parametrize(
    "size, rows, scale, dropped",
    [
        (30.9, 100, 1.0, 70),
        (30.9, 100, 2.0, 39),
        (0.2, 100, 1.0, 99),
        (500, 100, 1.0, 1),
        (1, 2, 1, 1),
        (1, 1, 1, 0),
    ],
)
def test_rows_to_drop(size: float, rows: int, scale: float, dropped: int) -> None:
    assert rows_to_drop(size, rows, scale) == dropped
