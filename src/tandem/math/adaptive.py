"""Rules by which numbers of a training follow a signal: the effective sample size of the replay
buffer (Kish 1965, "Survey Sampling", section 11.7; for importance weights Kong 1992, technical
report 348, University of Chicago), or the gradient noise (McCandlish et al. 2018,
arXiv:1812.06162).

The rules are those of Note_rl, which cites no paper for them. They depend on e / T, where e is the
smoothed signal and T its target.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, inf, isfinite, isnan, log2
from typing import Literal, NamedTuple

import numpy as np

from tandem.errors import SettingError, one_of
from tandem.types import Array

Signal = Literal["ess", "noise"]
MOST_SIZES = 8  # of minibatches: each size is compiled


@dataclass(frozen=True)
class Rule:
    """Response of one number to a signal. by_ess, by_noise: 1 if it grows with the signal, -1 if it
    falls, 0 if it does not change. count: an integer, which is multiplied; other numbers are added
    to. low, high: the range of valid values."""

    by_ess: int
    by_noise: int
    count: bool = False
    low: float = 0.0
    high: float = inf


BELOW_1 = 1 - 1e-6  # momentum: Adam divides by 1 - beta ** t, in float32

# In this order; if two rules change the same value, the later one wins.
RULES: dict[str, Rule] = {
    "alpha": Rule(+1, -1),
    "lr": Rule(+1, -1),
    "eps": Rule(-1, +1, high=1.0),
    "tau": Rule(+1, -1, high=1.0),
    "gamma": Rule(+1, -1, high=1.0),
    "clip": Rule(+1, -1),
    "beta": Rule(-1, +1),
    "weight_decay": Rule(-1, +1),
    "beta1": Rule(+1, +1, high=BELOW_1),
    "beta2": Rule(+1, +1, high=BELOW_1),
    "freq": Rule(-1, +1, count=True, low=1.0),
    "store": Rule(-1, 0, count=True, low=1.0),
    "num_updates": Rule(+1, 0, count=True, low=1.0),
    "batch": Rule(+1, +1, count=True, low=1.0),
}


@dataclass(frozen=True)
class Parameters:
    """A user's options of a rule: `rate` and `smooth` for a number, `scale` for a count, `align`
    for the minibatch; bounds for both."""

    rate: float | None = None
    smooth: float = 0.2
    scale: float = 1.0
    min: float | None = None
    max: float | None = None
    align: int | None = None

    @classmethod
    def of(cls, name: str, given: object) -> Parameters:
        """Return the options in a dict for the rule `name`. Raises SettingError for invalid keys or
        values."""
        rule = RULES[name]
        keys: tuple[str, ...] = (
            ("scale", "min", "max") if rule.count else ("rate", "min", "max", "smooth")
        )
        keys += ("align",) if name == "batch" else ()
        if not isinstance(given, dict):
            raise SettingError(
                f"{name}_params={given!r}.",
                f"a dict with some of {', '.join(keys)}",
                f"give {name}_params={{{keys[0]!r}: 0.1}}, for example.",
            )
        for key, value in given.items():
            one_of(f"a key of {name}_params", key, keys)
            if value is not None and not isinstance(value, (int, float, np.number)):
                raise SettingError(
                    f"{name}_params[{key!r}]={value!r}.", "a number", f"give {key!r} a number."
                )
        parameters = cls(**{k: v for k, v in given.items() if v is not None})
        if not rule.count and parameters.rate is None:
            raise SettingError(
                f"{name}_params={given!r} without a rate.",
                "the change when the signal is twice its target",
                f"give {name}_params={{'rate': 0.01}}, for example.",
            )
        parameters.bounds(rule)
        return parameters

    def bounds(self, rule: Rule) -> tuple[float, float]:
        """Return (lowest, highest), within the rule's valid range. Raises SettingError if the range
        is empty."""
        low = rule.low if self.min is None else max(rule.low, float(self.min))
        high = rule.high if self.max is None else min(rule.high, float(self.max))
        if isnan(low) or not low <= high:
            raise SettingError(
                f"min={self.min}, max={self.max}.",
                f"a range of numbers from {rule.low:g} to {rule.high:g}",
                "give a min that is not above max.",
            )
        return low, high


def relative(e: float, target: float) -> float:
    """Return e / target; 1 for 0 / 0, and infinity for any other e / 0."""
    if target:
        return e / target
    return 1.0 if not e else inf


def moved(old: float, sign: int, ratio: float, parameters: Parameters, rule: Rule) -> float:
    """Return smooth old + (1 - smooth) clip(old + rate sign (ratio - 1), min, max), where ratio is
    e / T; `old` if that is not finite."""
    low, high = parameters.bounds(rule)
    assert parameters.rate is not None
    candidate = min(max(old + parameters.rate * sign * (ratio - 1.0), low), high)
    new = parameters.smooth * old + (1.0 - parameters.smooth) * candidate
    return new if isfinite(new) else old


def multiplied(old: float, sign: int, ratio: float, parameters: Parameters, rule: Rule) -> float:
    """Return clip(scale old ratio ** sign, min, max), where ratio is e / T; `old` if that is not
    finite. Not rounded, so that small changes add up."""
    low, high = parameters.bounds(rule)
    factor = ratio if sign > 0 else relative(1.0, ratio)
    new = min(max(old * factor * parameters.scale, low), high)
    return new if isfinite(new) else old


def batch_sizes(low: int, high: int, align: int | None = None) -> tuple[int, ...]:
    """Return the minibatch sizes from `low` to `high` in increasing order, at most eight, since
    each one is compiled. They are the powers of two in this range (times align), every second or
    third if there are more than eight, and the bounds if there is room."""
    unit = align or 1
    first, last = ceil(log2(max(low, unit) / unit)), floor(log2(max(high, unit) / unit))
    exponents = np.arange(first, last + 1)
    if len(exponents) > MOST_SIZES:
        exponents = np.unique(np.linspace(first, last, MOST_SIZES).round().astype(int))
    sizes = [unit * 2 ** int(k) for k in exponents if low <= unit * 2 ** int(k) <= high]
    bounds = [] if align and sizes else [low, high]
    with_bounds = sorted({*sizes, *bounds})
    return tuple(with_bounds if len(with_bounds) <= MOST_SIZES else sizes)


def size_below(size: float, sizes: tuple[int, ...], rows: int) -> int:
    """Return the largest of `sizes` that is at most the rounded `size` and `rows`; the smallest of
    them if there is none."""
    limit = min(round(size), rows)
    return max((s for s in sizes if s <= limit), default=min(sizes))


class Noise(NamedTuple):
    """Variation between gradients of minibatches."""

    variance: float  # over minibatches, averaged over weights
    scale: float  # the simple noise scale, in samples


def gradient_noise(gradients: Array, batch_size: int) -> Noise:
    """Return the noise of the gradients [K, P] of K independent minibatches of `batch_size`
    samples.

    variance: the mean over the P weights of the mean of (g - mean g) ** 2 over the K minibatches.
    scale: tr(S) / |G| ** 2 (McCandlish et al. 2018, equation 2.9), where S is the covariance of a
    sample's gradient and G the true gradient. Both estimates are unbiased, and for K = 2 they are
    those of appendix A.1 with minibatches of B and 2 B: tr(S) = B sum var, |G| ** 2 = |mean g| ** 2
    - sum var / K, where var has the denominator K - 1. The scale is infinite if the estimate of |G|
    ** 2 is not positive; (0, 0) for fewer than two minibatches.
    """
    g = np.asarray(gradients, np.float64)
    if len(g) < 2 or not g.size:
        return Noise(0.0, 0.0)
    mean = g.mean(0)
    squares = ((g - mean) ** 2).sum()
    spread = squares / (len(g) - 1)
    signal = float((mean * mean).sum() - spread / len(g))
    if not spread:
        return Noise(0.0, 0.0)
    scale = batch_size * float(spread) / signal if signal > 0 else inf
    return Noise(float(squares / g.size), scale)
