"""Formatting of returns: the only place that decides the number of digits."""

from __future__ import annotations

from math import floor, isfinite, log10


def figures(value: float, *beside: float, grouped: bool = False) -> str:
    """Format a return with three significant digits and at least one decimal: 0.742, 9.35, -146.9.

    Trailing zeros are left out, except for the first decimal. beside: numbers shown next to it,
    such as its standard deviation; the largest of all determines the decimals of each, so that they
    agree. grouped: with commas between thousands. Units are those of rewards.
    """
    group = [x for x in (value, *beside) if isfinite(x)]
    largest = max(map(abs, group), default=0.0)
    if 0 < largest < 1e-4:  # rewards too small for decimals
        return f"{value:.3g}"
    decimals = max(1, 2 - floor(log10(largest))) if largest else 1
    while decimals > 1 and all(f"{x:.{decimals}f}".endswith("0") for x in group):
        decimals -= 1
    value = round(value, decimals) + 0.0  # no "-0.0"
    return f"{value:,.{decimals}f}" if grouped else f"{value:.{decimals}f}"


def mean_and_std(mean: float, std: float, sign: str = "±") -> str:
    """Return, for example, "0.742 ± 0.438"."""
    return f"{figures(mean, std)} {sign} {figures(std, mean)}"


def listed(*values: float) -> list[str]:
    """Format several returns with the same number of decimals."""
    return [figures(value, *values) for value in values]
