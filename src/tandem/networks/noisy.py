"""Noise on weights whose size is learned, as exploration: NoisyNet (Fortunato et al. 2018,
arXiv:1706.10295)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from tandem.networks.plan import Dense, Weights, activate, with_last
from tandem.types import Array

SIGMA = 0.5  # times 1 / sqrt(inputs): the first size of the noise (section 3.2, factorised)


@dataclass(frozen=True)
class NoisyDense(Dense):
    """x @ (kernel + kernel_sigma * kernel_noise) + bias + bias_sigma * bias_noise, then an
    activation (eq. 9).

    The noise is set from outside, and is 0 at first: then it is a Dense layer. kernel*: [inputs,
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


noisy = partial(with_last, kind=NoisyDense)  # a head with noise on its output layer


def is_noise(name: str) -> bool:
    """Whether a weight of this name is the noise of a noisy layer."""
    return name.rsplit("/", 1)[-1] in NoisyDense.frozen


def draw(
    kind: str, rng: np.random.Generator, shapes: dict[str, tuple[int, ...]], count: int
) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
    """Noise [count, ...] for weights of these names ("place/kernel_noise" and "place/bias_noise",
    in any order) and shapes.

    kind "independent": each number is N(0, 1). "factorised" (eqs. 10 and 11): with f(x) = sign(x)
    sqrt|x|, the kernel's is f(a) f(b)^T and the bias's f(b), for a [inputs] and b [units] from N(0,
    1).
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
