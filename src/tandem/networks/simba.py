"""SimBa's body (Lee et al. 2024, arXiv:2410.09754, section 4): observations standardised by running
statistics, then residual blocks with layer norm, so that wider and deeper networks stay simple."""

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

EXPANSION = 4  # the hidden layer of a block, in widths of the body


@dataclass(frozen=True)
class RunningNorm(Layer):
    """(x - mean) / sqrt(variance + epsilon), by the mean and variance of all rows that were ever
    learned from (section 4.1), which a forward pass in training moves."""

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
        """(the output in training for x [B, width], what the statistics become): those of the rows
        before and of these together (Chan et al. 1983)."""
        xp, rows = ops.of(x), x.shape[0]
        seen = xp.stop_gradient(x)
        mean = xp.mean(seen, 0)
        variance = xp.mean((seen - mean) ** 2, 0)
        count = w["moving_count"]
        share = rows / (count + rows)  # of these rows among all
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
    """x + W2 activation(W1 LayerNorm(x)), with a hidden layer `EXPANSION` times as wide (section
    4.2)."""

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
    """The body: a block for each of the widths, which are one; layer norm behind the last. See
    `on_standardized`."""

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
    """What `blocks` makes, of how many numbers enter and their one width, on observations that are
    standardised by running statistics: with `normalize` by those that are set from outside
    (`plan.Normalize`), else by their own. Features of a picture alone go on as they are.
    SettingError where the widths differ; it names the body, and a usual width of it."""
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
