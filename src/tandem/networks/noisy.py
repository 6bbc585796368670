"""Exploration by learned noise on weights: NoisyNet (Fortunato et al. 2018, arXiv:1706.10295)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from tandem.networks.plan import Dense, Weights, activate, with_last
from tandem.types import Array

SIGMA = 0.5  # times 1 / sqrt(inputs): initial scale of the noise (section 3.2, factorised)


@dataclass(frozen=True)
class NoisyDense(Dense):
    """A noisy dense layer: x @ (kernel + kernel_sigma * kernel_noise) + bias + bias_sigma *
    bias_noise, then an activation (eq. 9).

    The noise is set externally. It is 0 at first, which makes this a Dense layer. kernel*: [inputs,
    units], bias*: [units].
    """

    frozen: ClassVar[tuple[str, ...]] = ("kernel_noise", "bias_noise")

    def init(self, rng: np.random.Generator) -> Weights:
        mean = super().init(rng)
        size = np.float32(SIGMA / np.sqrt(self.inputs))
        sigmas = {f"{n}_sigma": np.full_like(x, size) for n, x in mean.items()}
        return mean | sigmas | {f"{n}_noise": np.zeros_like(x) for n, x in mean.items()}

    def forward(self, w: Weights, x: Array) -> Array:
        kernel = w["kernel"] + w["kernel_sigma"] * w["kernel_noise"]
        bias = w["bias"] + w["bias_sigma"] * w["bias_noise"]
        return activate(self.activation, x @ kernel + bias)


noisy = partial(with_last, kind=NoisyDense)  # returns a head with noise on its output layer


def is_noise(name: str) -> bool:
    """True if a weight of this name is the noise of a noisy layer."""
    return name.rsplit("/", 1)[-1] in NoisyDense.frozen


def draw(
    kind: str, rng: np.random.Generator, shapes: dict[str, tuple[int, ...]], count: int
) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
    """Sample noise [count, ...] for weights of these names ("place/kernel_noise" and
    "place/bias_noise", in any order) and shapes.

    With kind "independent", each number is N(0, 1). With "factorised" (eqs. 10 and 11), the
    kernel's noise is f(a) f(b)^T and the bias's f(b), where f(x) = sign(x) sqrt|x|, and a [inputs]
    and b [units] are from N(0, 1).
    """
    noise = {}
    for name in [n for n in shapes if n.endswith("kernel_noise")]:
        inputs, units = shapes[name]
        bias = name.removesuffix("kernel_noise") + "bias_noise"
        if kind == "independent":
            noise[name] = rng.standard_normal((count, inputs, units), np.float32)
            noise[bias] = rng.standard_normal((count, units), np.float32)
        else:
            a, b = (_root(rng.standard_normal((count, n), np.float32)) for n in (inputs, units))
            noise[name], noise[bias] = a[:, :, None] * b[:, None, :], b
    return noise


def _root(x: Array) -> Array:
    return np.sign(x) * np.sqrt(np.abs(x))
