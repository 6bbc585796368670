"""SimBa's feature extractor (Lee et al. 2024, arXiv:2410.09754, section 4): observations
standardized by running statistics, then residual blocks with layer normalization, so that wider and
deeper networks stay simple."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tandem import ops
from tandem.errors import SettingError
from tandem.networks.attention import Block, Parts
from tandem.networks.defaults import Inputs, encoder
from tandem.networks.plan import Dense, Layer, LayerNorm, Plan, Weights, width
from tandem.types import Array, Tree

EXPANSION = 4  # width of a block's hidden layer, relative to the block


@dataclass(frozen=True)
class RunningNorm(Layer):
    """Normalization (x - mean) / sqrt(variance + epsilon) with the mean and variance of all rows
    ever trained on (section 4.1), updated by forward passes in training."""

    width: int
    epsilon: float = 1e-5
    frozen: ClassVar[tuple[str, ...]] = ("moving_mean", "moving_variance", "moving_count")

    def init(self, rng: np.random.Generator) -> Weights:
        mean, variance = np.zeros(self.width, np.float32), np.ones(self.width, np.float32)
        count = np.zeros(1, np.float32)
        return {"moving_mean": mean, "moving_variance": variance, "moving_count": count}

    def forward(self, w: Weights, x: Array) -> Array:
        return (x - w["moving_mean"]) / ops.of(x).sqrt(w["moving_variance"] + self.epsilon)

    def train(self, w: Weights, x: Array) -> tuple[Array, Weights]:
        """Return (training output for x [B, width], new statistics). The statistics combine those
        of previous rows and these (Chan et al. 1983)."""
        xp, rows = ops.of(x), x.shape[0]
        seen = xp.stop_gradient(x)
        mean = xp.mean(seen, 0)
        variance = xp.mean((seen - mean) ** 2, 0)
        count = w["moving_count"]
        share = rows / (count + rows)  # share of these rows among all
        apart = mean - w["moving_mean"]
        moved = {
            "moving_mean": w["moving_mean"] + share * apart,
            "moving_variance": (1.0 - share) * w["moving_variance"]
            + share * variance
            + share * (1.0 - share) * apart * apart,
            "moving_count": count + rows,
        }
        return self.forward(moved, x), moved


@dataclass(frozen=True)
class ResidualBlock(Block):
    """A residual block x + W2 activation(W1 LayerNorm(x)), with a hidden layer `EXPANSION` times as
    wide (section 4.2)."""

    width: int
    activation: str = "relu"

    @property
    def parts(self) -> dict[str, Layer]:
        wide, gain = EXPANSION * self.width, 2**0.5
        return {
            "norm": LayerNorm(self.width),
            "wide": Dense(self.width, wide, self.activation, "orthogonal", gain),
            "narrow": Dense(wide, self.width, "linear", "orthogonal", gain),
        }

    def run(self, f: Parts, x: Tree) -> Array:
        return x + f["narrow"](f["wide"](f["norm"](x)))


def simba(
    inputs: Inputs, widths: tuple[int, ...], activation: str, *, normalize: bool = False
) -> Plan:
    """Return the feature extractor: one block per entry of `widths`, which must be equal, with
    layer normalization after the last. See `on_standardized`."""

    def blocks(entering: int, units: int) -> Plan:
        first = Dense(entering, units, "linear", "orthogonal")
        return (first, *(ResidualBlock(units, activation) for _ in widths), LayerNorm(units))

    return on_standardized(blocks, "simba", 256, inputs, widths, normalize)


def on_standardized(
    blocks: Callable[[int, int], Plan],
    body: str,
    usual: int,
    inputs: Inputs,
    widths: tuple[int, ...],
    normalize: bool,
) -> Plan:
    """Return the result of `blocks`, a function of the number of inputs and the width, on
    standardized observations: by statistics set externally (`plan.Normalize`) with `normalize`,
    else by running statistics. Features of an image alone are not standardized. Raises SettingError
    if the widths differ; the message names the body, with a usual width."""
    if not widths or len(set(widths)) > 1:
        raise SettingError(
            f"body={body!r} with layers of {', '.join(map(str, widths)) or 'no'} units.",
            "one width for all blocks, listed once per block",
            f"give hidden=(128,) for one block of 128, or hidden=({usual}, {usual}) for two of "
            f"{usual}.",
        )
    plan = encoder(inputs, normalize=normalize)
    if not isinstance(inputs, dict) and inputs.image:
        return plan
    entering = width(plan)
    own = () if normalize else (RunningNorm(entering),)
    return (*plan, *own, *blocks(entering, widths[0]))
