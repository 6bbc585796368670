"""Rules, sizes of minibatches and the noise of gradients, against numbers worked by hand."""

from itertools import product
from math import inf
from typing import Any

import numpy as np
import pytest

from tandem.errors import SettingError
from tandem.math.adaptive import (
    BELOW_1,
    MOST_SIZES,
    RULES,
    Parameters,
    batch_sizes,
    gradient_noise,
    moved,
    multiplied,
    relative,
    size_below,
)
from tandem.math.effective import effective_sample_size, rows_to_drop, smoothed


def test_the_table_is_the_documented_one() -> None:
    signs = {n: (r.by_ess, r.by_noise) for n, r in RULES.items()}
    assert signs == {
        **dict.fromkeys(("alpha", "lr", "tau", "gamma", "clip"), (1, -1)),
        **dict.fromkeys(("eps", "beta", "weight_decay", "freq"), (-1, 1)),
        **dict.fromkeys(("beta1", "beta2", "batch"), (1, 1)),
        "store": (-1, 0),
        "num_updates": (1, 0),
    }


PLAIN = {"rate": 1.0, "smooth": 0.0}


@pytest.mark.parametrize(
    ("name", "sign", "e", "target", "given", "expected"),
    [
        ("alpha", 1, 20.0, 10.0, {"rate": 0.1, "smooth": 0.0}, 0.6),  # 0.5 + 0.1 (2 - 1)
        ("alpha", -1, 5.0, 10.0, {"rate": 0.1, "smooth": 0.0}, 0.55),
        ("alpha", 1, 20.0, 10.0, {"rate": 0.1}, 0.2 * 0.5 + 0.8 * 0.6),
        ("alpha", 1, 20.0, 10.0, {"rate": 1.0, "max": 0.7, "smooth": 0.5}, 0.6),
        ("alpha", 1, 0.0, 10.0, {**PLAIN, "min": 0.3}, 0.3),
        ("alpha", 1, 0.0, 0.0, PLAIN, 0.5),
        ("alpha", 1, 3.0, 0.0, {**PLAIN, "max": 0.9}, 0.9),
        ("alpha", -1, 3.0, 0.0, PLAIN, 0.0),
        ("alpha", 1, 3.0, 0.0, PLAIN, 0.5),  # where the limit is infinite, it stays
        ("store", 1, 20.0, 10.0, {}, 8.0),
        ("store", -1, 20.0, 10.0, {"scale": 3.0}, 6.0),
        ("store", 1, 20.0, 10.0, {"max": 5}, 5.0),
        ("store", 1, 1.0, 10.0, {}, 1.0),  # a count is 1 at least
        ("store", 1, 11.0, 10.0, {}, 4.4),  # rounded only where it is used
        ("store", -1, 0.0, 10.0, {"max": 7}, 7.0),
        ("store", 1, 1.0, 0.0, {}, 4.0),  # where the limit is infinite, it stays
    ],
)
def test_a_number_moves(name, sign, e, target, given, expected) -> None:
    rule, parameters = RULES[name], Parameters.of(name, given)
    move, old = (multiplied, 4.0) if rule.count else (moved, 0.5)
    found = move(old, sign, relative(e, target), parameters, rule)
    assert found == pytest.approx(expected)


def test_what_numbers_can_be_at_all() -> None:
    wide = {"rate": 100.0, "smooth": 0.0, "min": -5.0, "max": 5.0}
    for name, low, high in (("eps", 0, 1), ("gamma", 0, 1), ("tau", 0, 1), ("beta1", 0, BELOW_1)):
        rule, parameters = RULES[name], Parameters.of(name, wide)
        assert moved(0.5, 1, 9.0, parameters, rule) == high
        assert moved(0.5, -1, 9.0, parameters, rule) == low


@pytest.mark.parametrize(
    ("name", "given", "word"),
    [
        ("lr", {"rat": 1.0}, "give a key of lr_params='rate'"),
        ("lr", {"min": 1.0}, "without a rate"),
        ("lr", {"rate": "x"}, "a number"),
        ("lr", [1.0], "a dict"),
        ("lr", {"rate": 1.0, "min": 2.0, "max": 1.0}, "not above max"),
        ("eps", {"rate": 1.0, "min": 2.0}, "from 0 to 1"),
        ("store", {"rate": 1.0}, "'scale', 'min', 'max'"),
    ],
)
def test_what_is_said_wrongly_is_refused(name: str, given: Any, word: str) -> None:
    with pytest.raises(SettingError, match=word):
        Parameters.of(name, given)


def test_batch_sizes_are_at_most_eight_within_bounds() -> None:
    for low, high, align, sizes in (
        (32, 256, None, (32, 64, 128, 256)),
        (20, 100, None, (20, 32, 64, 100)),
        (7, 7, None, (7,)),
        (1, 200, None, (1, 2, 4, 8, 16, 32, 64, 128)),
        (20, 100, 24, (24, 48, 96)),
        (10, 20, 24, (10, 20)),
    ):
        assert batch_sizes(low, high, align) == sizes
    for low, high, align in product((1, 3, 32, 100), (100, 10_000, 10**7), (None, 8, 24)):
        sizes = batch_sizes(low, high, align)
        assert 1 <= len(sizes) <= MOST_SIZES and low <= min(sizes) and max(sizes) <= high
        assert sorted(sizes) == list(sizes) and (align or 2 * max(sizes) > high)
    for wanted, rows, size in ((95.4, 1000, 64), (95.6, 1000, 96), (1e9, 70, 64), (0.0, 0, 32)):
        assert size_below(wanted, (32, 64, 96), rows) == size


def test_noise_of_gradients_by_hand() -> None:
    g = np.array([[3.0, 1.0], [5.0, 1.0]])  # mean (4, 1), var (1, 0); with K - 1 below (2, 0)
    noise = gradient_noise(g, 10)
    assert noise.variance == 0.5
    assert noise.scale == pytest.approx(10 * 2.0 / (17.0 - 2.0 / 2))
    for rows in (0, 1, 5):
        assert gradient_noise(np.ones((rows, 3)), 4) == (0.0, 0.0)
    assert gradient_noise(np.array([[1.0], [-1.0]]), 4) == (1.0, inf)


def test_effective_sample_sizes() -> None:
    small, large = ([n * scale for n in (1, 2, 3)] for scale in (1e-300, 1e300))
    for weight, size in (
        *(([0.3] * 7, 7), ([0.0, 5.0, 0.0], 1), ([0.0] * 4, 4), ([], 0)),
        *((weight, 36 / 14) for weight in ([1.0, 2.0, 3.0], small, large)),
    ):
        assert effective_sample_size(weight) == pytest.approx(size)
    for bad in (-1.0, np.nan, np.inf):
        with pytest.raises(SettingError, match="1 of 3 weights"):
            effective_sample_size([1.0, bad, 1.0])


def test_smoothing_begins_with_the_first_and_rows_to_drop() -> None:
    assert smoothed(None, 10.0) == 10.0
    assert smoothed(10.0, 20.0) == pytest.approx(12.0) and smoothed(10.0, 20.0, 1.0) == 20.0
    for size, rows, scale, dropped in (
        *((30.9, 100, 1.0, 70), (30.9, 100, 2.0, 39), (0.2, 100, 1.0, 99), (500, 100, 1.0, 1)),
        *((1, 2, 1, 1), (1, 1, 1, 0)),
    ):
        assert rows_to_drop(size, rows, scale) == dropped
