"""SimbaV2's layers (Lee et al. 2025, arXiv:2502.15280, section 4): features and the weights of each
unit have length 1, and learned scalers set their magnitudes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import sqrt

import numpy as np

from tandem import ops
from tandem.math.optimization import on_sphere
from tandem.networks.defaults import Inputs
from tandem.networks.plan import Dense, Layer, Plan, Weights, activate, with_last
from tandem.networks.simba import EXPANSION, on_standardized
from tandem.networks.unit import KERNEL, unit_kernel
from tandem.types import Array

SHIFT = 3.0  # constant appended to observations, so that their length is not lost (section 4.1)


@dataclass(frozen=True)
class SphericalEmbedding(Layer):
    """An embedding that appends `SHIFT` to inputs [B, inputs] and normalizes them to length 1,
    followed by a unit kernel, a scaler and a second normalization to length 1 (section 4.1)."""

    inputs: int
    units: int

    def init(self, rng: np.random.Generator) -> Weights:
        kernel = unit_kernel(rng, self.inputs + 1, self.units)
        return {KERNEL: kernel, "scaler": np.full(self.units, sqrt(2.0 / self.units), np.float32)}

    def forward(self, w: Weights, x: Array) -> Array:
        xp = ops.of(x)
        shifted = xp.concat([x, 0.0 * x[..., :1] + SHIFT], -1)
        return on_sphere(w["scaler"] * (on_sphere(shifted) @ w[KERNEL]))


@dataclass(frozen=True)
class LerpBlock(Layer):
    """A block that moves x toward the output of a hidden layer by learned steps per feature, back
    on the sphere (section 4.2): l2(x + alpha (l2(W2 activation(s W1 x)) - x)), `EXPANSION` times as
    wide inside. blocks: the number of blocks in sequence, which divide the initial step among
    them."""

    width: int
    blocks: int
    activation: str = "relu"

    def init(self, rng: np.random.Generator) -> Weights:
        wide = EXPANSION * self.width
        return {
            f"wide_{KERNEL}": unit_kernel(rng, self.width, wide),
            "scaler": np.full(wide, sqrt(2.0 / self.width / EXPANSION), np.float32),
            f"narrow_{KERNEL}": unit_kernel(rng, wide, self.width),
            # in this unit, its update steps are as large as those of features
            "alpha": np.full(self.width, 1.0 / sqrt(self.width), np.float32),
        }

    def forward(self, w: Weights, x: Array) -> Array:
        wide = activate(self.activation, w["scaler"] * (x @ w[f"wide_{KERNEL}"]))
        far = on_sphere(wide @ w[f"narrow_{KERNEL}"])
        return on_sphere(x + self.steps(w) * (far - x))

    def steps(self, w: Weights) -> Array:
        """Return the step of each feature as a fraction of the way, initially 1 / (blocks + 1)."""
        return w["alpha"] * (sqrt(self.width) / (self.blocks + 1))


@dataclass(frozen=True)
class UnitHead(Dense):
    """A last layer: a unit kernel and a scaler, followed by a unit kernel and a bias (section
    4.3)."""

    def init(self, rng: np.random.Generator) -> Weights:
        return {
            f"hidden_{KERNEL}": unit_kernel(rng, self.inputs, self.inputs),
            "scaler": np.ones(self.inputs, np.float32),
            KERNEL: unit_kernel(rng, self.inputs, self.units),
            "bias": np.zeros(self.units, np.float32),
        }

    def forward(self, w: Weights, x: Array) -> Array:
        hidden = w["scaler"] * (x @ w[f"hidden_{KERNEL}"])
        return activate(self.activation, hidden @ w[KERNEL] + w["bias"])


def simbav2(
    inputs: Inputs, widths: tuple[int, ...], activation: str, *, normalize: bool = False
) -> Plan:
    """Return the feature extractor: one block per entry of `widths`, which must be equal. See
    `simba.on_standardized`."""

    def blocks(entering: int, units: int) -> Plan:
        several = (LerpBlock(units, len(widths), activation) for _ in widths)
        return (SphericalEmbedding(entering, units), *several)

    return on_standardized(blocks, "simbav2", 512, inputs, widths, normalize)


# returns a head whose last dense layer has unit kernels; layers of other types, such as noisy ones,
# are not replaced
unit_headed = partial(with_last, kind=UnitHead)
