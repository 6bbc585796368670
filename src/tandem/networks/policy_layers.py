"""Last layers of policies, beside those that `plan` has: what noise on actions is made of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tandem import ops
from tandem.networks.plan import Dense, Layer, Weights
from tandem.types import Array


@dataclass(frozen=True)
class DenseWithInputs(Dense):
    """Dense, and its inputs beside what it puts out, without a gradient: noise on actions can then
    depend on the state (Raffin et al. 2021, arXiv:2005.05719, section 4)."""

    @property
    def outputs(self) -> int:
        return self.units + self.inputs

    def forward(self, w: Weights, x: Array) -> Array:
        xp = ops.of(x)
        return xp.concat([super().forward(w, x), xp.stop_gradient(x)], -1)


@dataclass(frozen=True)
class StateDependent(Dense):
    """Means, cut to [-limit, limit], and what their noise is the sum of: each input times exp of a
    learned log standard deviation, [inputs, units], flattened (Raffin et al. 2021,
    arXiv:2005.05719, eqs. 5 to 7). Inputs take a gradient through the noise where `learn_features`
    says so."""

    log_std: float = 0.0  # at first
    learn_features: bool = False
    limit: float = 0.0  # 0: none

    @property
    def outputs(self) -> int:
        return self.units * (1 + self.inputs)

    def init(self, rng: np.random.Generator) -> Weights:
        log_std = np.full((self.inputs, self.units), self.log_std, np.float32)
        return {**super().init(rng), "log_std": log_std}

    def forward(self, w: Weights, x: Array) -> Array:
        xp = ops.of(x)
        mean = super().forward(w, x)
        if self.limit:
            mean = xp.clip(mean, -self.limit, self.limit)
        features = x if self.learn_features else xp.stop_gradient(x)
        parts = xp.reshape(features, (-1, self.inputs, 1)) * xp.exp(w["log_std"])
        return xp.concat([mean, xp.reshape(parts, (-1, self.inputs * self.units))], -1)


@dataclass(frozen=True)
class WithLogStd(Layer):
    """`inputs` numbers, and behind them `size` learned ones that depend on no input: the log
    standard deviations of the normal ones among several distributions."""

    inputs: int
    size: int
    initial: float = 0.0

    @property
    def outputs(self) -> int:
        return self.inputs + self.size

    def init(self, rng: np.random.Generator) -> Weights:
        return {"log_std": np.full(self.size, self.initial, np.float32)}

    def forward(self, w: Weights, x: Array) -> Array:
        return ops.of(x).concat([x, 0.0 * x[..., :1] + w["log_std"]], -1)
