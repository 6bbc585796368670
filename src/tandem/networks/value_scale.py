"""A last layer for critics that learn standardized values, which restores the original units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tandem import ops
from tandem.errors import SettingError
from tandem.math.moments import merged
from tandem.networks.plan import Dense, Layer, Plan, Weights
from tandem.types import Array

LEAST = 1e-2  # minimum of a variance: nearly equal returns are not amplified


@dataclass(frozen=True)
class Denormalize(Layer):
    """Denormalization x * sqrt(variance) + mean, with running statistics of returns that are set
    externally and have no gradient (van Hasselt et al. 2016, arXiv:1602.07714, eq. 1)."""

    frozen: ClassVar[tuple[str, ...]] = ("value_mean", "value_variance", "value_count")

    @property
    def outputs(self) -> int:
        return 1

    def init(self, rng: np.random.Generator) -> Weights:
        return dict(
            zip(
                self.frozen,
                (np.zeros(1, np.float32), np.ones(1, np.float32), np.zeros(1, np.float32)),
                strict=True,
            )
        )

    def forward(self, w: Weights, x: Array) -> Array:
        return x * ops.of(x).sqrt(w["value_variance"]) + w["value_mean"]


class Followed(NamedTuple):
    """The change of the statistics of returns: a network that output x before now outputs `ratio` x
    + `shift`."""

    deviation: Array
    ratio: Array
    shift: Array


def follow(network: Any, returns: Array, preserve: bool) -> Followed:
    """Update the statistics of a network that ends with such a layer by returns [M]. With
    `preserve`, rescale the layer before it so that the network's outputs stay the same (section
    2.2, eq. 3, "Pop"). Raises SettingError for a custom network whose last layer is unknown."""
    weights: Weights = network.read()
    places = [n.removesuffix("value_mean") for n in weights if n.endswith("value_mean")]
    if not _ends_linearly(network.plan) if preserve else network.plan is not None and not places:
        kind, other = ("popart", "norm") if preserve else ("norm", "no")
        raise SettingError(
            f"value_norm={kind!r} is not supported with a custom critic whose last layer is "
            "unknown.",
            "the default networks, or a network of Dense layers, norms and activations",
            f"give value_norm={other!r}, or leave network= out.",
        )
    found = [[place + n for n in Denormalize.frozen] for place in places]  # one per network
    if network.plan is None:  # names are positions, with the last layer's at the end
        found = [list(weights)[-len(Denormalize.frozen) :]]
    changed = dict(weights)
    for names in found:
        xp = ops.of(returns)
        mean, variance, count = (_wide(weights[n]) for n in names)
        deviation = xp.sqrt(variance)
        new_mean, new_variance, new_count = merged(mean, variance, count, _wide(returns)[:, None])
        new_variance = xp.maximum(new_variance, LEAST)
        now = xp.sqrt(new_variance)
        if preserve:
            parent, _, index = names[0].rpartition("/")[0].rpartition("/")
            before = f"{parent}/{int(index) - 1}".lstrip("/")
            shrink, off = deviation / now, (mean - new_mean) / now
            changed[f"{before}/kernel"] = (weights[f"{before}/kernel"] * shrink).astype(np.float32)
            changed[f"{before}/bias"] = (weights[f"{before}/bias"] * shrink + off).astype(
                np.float32
            )
        values = (new_mean, new_variance, new_count)
        changed |= {n: x.astype(np.float32) for n, x in zip(names, values, strict=True)}
    network.write(changed)
    ratio = now / deviation
    shift = new_mean - ratio * mean
    if preserve:
        return Followed(_number(now), 1.0, 0.0)
    return Followed(*map(_number, (now, ratio, shift)))


def _ends_linearly(plan: Plan | None) -> bool:
    """True if the layer before the statistics is known to be linear, as in tandem's heads."""
    if plan is None or not isinstance(plan[-1], Denormalize):  # inside a layer with tandem's head
        return plan is not None
    return isinstance(last := plan[-2], Dense) and last.activation == "linear"


def _wide(x: Array) -> Array:
    """Return NumPy arrays as float64, others unchanged."""
    return x.astype(np.float64) if isinstance(x, np.ndarray) else x


def _number(x: Array) -> Array:
    """Return the only entry of x [1]; for NumPy as a float, which does not change an array's
    precision."""
    return float(x[0]) if isinstance(x, np.ndarray) else x[0]
