"""Returns as people read them: the one place that says how many digits are shown."""

from __future__ import annotations

from math import floor, isfinite, log10


def figures(value: float, *beside: float, grouped: bool = False) -> str:
    """A return with three significant digits, and one decimal at least: 0.742, 9.35, -146.9.

    Decimals that are zeros are left out, but for the first. beside: numbers that are read with it,
    such as its deviation: the largest of all says how many decimals each has, so that figures
    beside one another agree. grouped: with commas between thousands. Units are those of rewards.
    """
    group = [x for x in (value, *beside) if isfinite(x)]
    largest = max(map(abs, group), default=0.0)
    if 0 < largest < 1e-4:  # rewards of a scale that decimals do not show
        return f"{value:.3g}"
    decimals = max(1, 2 - floor(log10(largest))) if largest else 1
    while decimals > 1 and all(f"{x:.{decimals}f}".endswith("0") for x in group):
        decimals -= 1
    value = round(value, decimals) + 0.0  # no "-0.0"
    return f"{value:,.{decimals}f}" if grouped else f"{value:.{decimals}f}"


def mean_and_std(mean: float, std: float, sign: str = "±") -> str:
    """As in "0.742 ± 0.438"."""
    return f"{figures(mean, std)} {sign} {figures(std, mean)}"


def listed(*values: float) -> list[str]:
    """Each of some returns, with the same number of decimals."""
    return [figures(value, *values) for value in values]
