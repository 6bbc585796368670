"""Weights whose columns have length 1. They are normalized after each optimizer step, which
recognizes them by name."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tandem.math.optimization import unit_columns
from tandem.networks.plan import Dense, Plan, Weights, activate, draw
from tandem.types import Array

KERNEL = "unit_kernel"  # suffix of the names of such weights [inputs, units]


def is_unit(name: str) -> bool:
    """True if the columns of the weight of this name are kept at length 1."""
    return name.endswith(KERNEL)


def unit_kernel(rng: np.random.Generator, inputs: int, units: int) -> Array:
    """Return initial weights [inputs, units]: orthogonal, with columns of length 1."""
    return unit_columns(draw(rng, (inputs, units), "orthogonal", 1.0)["kernel"])


@dataclass(frozen=True)
class UnitDense(Dense):
    """A dense layer x @ unit_kernel, then an activation, for use before a normalization, which
    cancels the length of its weights and has its own bias. unit_kernel [inputs, units]."""

    def init(self, rng: np.random.Generator) -> Weights:
        return {KERNEL: unit_kernel(rng, self.inputs, self.units)}

    def forward(self, w: Weights, x: Array) -> Array:
        return activate(self.activation, x @ w[KERNEL])


def projected(body: Plan) -> Plan:
    """Return a feature extractor whose dense layers have unit kernels and no bias."""
    return tuple(UnitDense(**vars(layer)) if type(layer) is Dense else layer for layer in body)
