"""Batch renormalization, whose statistics are updated by forward passes in training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tandem import ops
from tandem.networks.plan import Conv, Dense, Layer, Plan, Weights
from tandem.types import Array

R_MAX, D_MAX = 3.0, 5.0  # Ioffe 2017, section 3: limits of the corrections r and d


@dataclass(frozen=True)
class BatchRenorm(Layer):
    """Batch renormalization over the last axis (Ioffe 2017, arXiv:1702.03275, algorithm 1) with
    learned scale and bias.

    When acting, it uses the moving mean and variance. In training, it normalizes by the batch
    statistics, corrected by r and d to match the moving ones; in its first `warmup` forward passes
    it is plain batch normalization (r = 1, d = 0).
    """

    width: int
    momentum: float = 0.99  # fraction of the moving statistics kept per training forward pass
    warmup: int = 100_000
    epsilon: float = 1e-3
    frozen: ClassVar[tuple[str, ...]] = ("moving_mean", "moving_variance", "moving_count")

    def init(self, rng: np.random.Generator) -> Weights:
        zeros, ones = np.zeros(self.width, np.float32), np.ones(self.width, np.float32)
        moving = {"moving_mean": zeros.copy(), "moving_variance": ones.copy()}
        return {"scale": ones, "bias": zeros, **moving, "moving_count": np.zeros(1, np.float32)}

    def forward(self, w: Weights, x: Array) -> Array:
        deviation = ops.of(x).sqrt(w["moving_variance"] + self.epsilon)
        return (x - w["moving_mean"]) * (w["scale"] / deviation) + w["bias"]

    def train(self, w: Weights, x: Array) -> tuple[Array, Weights]:
        """Return (training output for x [B, width], new moving statistics)."""
        xp = ops.of(x)
        mean = xp.mean(x, 0)
        held = xp.stop_gradient(mean)
        centred = x - held
        variance = xp.mean(centred * centred, 0)  # the mean's gradient would sum to 0 here
        deviation = xp.sqrt(variance + self.epsilon)
        moving = xp.sqrt(w["moving_variance"] + self.epsilon)
        r = xp.clip(xp.stop_gradient(deviation) / moving, 1 / R_MAX, R_MAX)
        d = xp.clip((held - w["moving_mean"]) / moving, -D_MAX, D_MAX)
        corrected = xp.cast(w["moving_count"] >= self.warmup)  # 0 or 1
        r, d = 1.0 + corrected * (r - 1.0), corrected * d
        moved = {
            "moving_mean": self._mixed(w["moving_mean"], held),
            "moving_variance": self._mixed(w["moving_variance"], xp.stop_gradient(variance)),
            "moving_count": xp.clip(w["moving_count"] + 1.0, 0.0, float(self.warmup)),
        }
        # (x - mean) / deviation * r + d, scaled and shifted, as one slope and one offset per unit,
        # so that the gradients of the mean and of the bias are one sum over the batch instead of
        # two. mean - held is 0, and has the gradient of the mean
        slope = w["scale"] * r / deviation
        offset = w["scale"] * d + w["bias"] - slope * (mean - held)
        return centred * slope + offset, moved

    def _mixed(self, moving: Array, batch: Array) -> Array:
        return self.momentum * moving + (1.0 - self.momentum) * batch


def moves(name: str) -> bool:
    """True if forward passes in training update the weight of this name."""
    return name.rsplit("/", 1)[-1].startswith("moving_")


def renormalized(body: Plan, momentum: float, warmup: int) -> Plan:
    """Return a feature extractor with batch renormalization of the input of its first dense layer,
    and after the activation of each dense layer, as in CrossQ. Features of an image are not
    normalized first."""
    plan: list[Layer] = []
    for layer in body:
        first = not any(isinstance(x, (Dense, Conv)) for x in plan)
        if isinstance(layer, Dense) and first:
            plan.append(BatchRenorm(layer.inputs, momentum, warmup))
        plan.append(layer)
        if isinstance(layer, Dense):
            plan.append(BatchRenorm(layer.units, momentum, warmup))
    return tuple(plan)
