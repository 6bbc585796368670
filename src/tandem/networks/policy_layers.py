"""Further last layers of policies, with the components of noise on actions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tandem import ops
from tandem.networks.plan import Dense, Layer, Weights
from tandem.types import Array


@dataclass(frozen=True)
class DenseWithInputs(Dense):
    """Dense, with its inputs appended to its outputs without a gradient, so that noise on actions
    can depend on the state (Raffin et al. 2021, arXiv:2005.05719, section 4)."""

    @property
    def outputs(self) -> int:
        return self.units + self.inputs

    def forward(self, w: Weights, x: Array) -> Array:
        xp = ops.of(x)
        return xp.concat([super().forward(w, x), xp.stop_gradient(x)], -1)


@dataclass(frozen=True)
class StateDependent(Dense):
    """Means, clipped to [-limit, limit], and the terms whose sum is their noise: each input times
    exp of a learned log standard deviation, [inputs, units], flattened (Raffin et al. 2021,
    arXiv:2005.05719, eqs. 5 to 7). Gradients flow to the inputs through the noise only if
    `learn_features`."""

    log_std: float = 0.0  # initial value
    learn_features: bool = False
    limit: float = 0.0  # 0: no limit

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
    """A layer that appends `size` learned numbers independent of the input to `inputs` numbers: the
    log standard deviations of the normal distributions among several distributions."""

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
