"""Weights of which each unit's have length 1: they are projected after each step of an optimizer,
which knows them by their name."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tandem.math.optimization import unit_columns
from tandem.networks.plan import Dense, Plan, Weights, activate, draw
from tandem.types import Array

KERNEL = "unit_kernel"  # ends the names of such weights [inputs, units]


def is_unit(name: str) -> bool:
    """Whether the columns of the weight of this name are kept at length 1."""
    return name.endswith(KERNEL)


def unit_kernel(rng: np.random.Generator, inputs: int, units: int) -> Array:
    """First weights [inputs, units]: orthogonal, each unit's of length 1."""
    return unit_columns(draw(rng, (inputs, units), "orthogonal", 1.0)["kernel"])


@dataclass(frozen=True)
class UnitDense(Dense):
    """x @ unit_kernel, then an activation: of a layer in front of a normalisation, which undoes any
    length of its weights and has a bias of its own. unit_kernel [inputs, units]."""

    def init(self, rng: np.random.Generator) -> Weights:
        return {KERNEL: unit_kernel(rng, self.inputs, self.units)}

    def forward(self, w: Weights, x: Array) -> Array:
        return activate(self.activation, x @ w[KERNEL])


def projected(body: Plan) -> Plan:
    """A body whose dense layers have unit kernels, and no bias."""
    return tuple(UnitDense(**vars(layer)) if type(layer) is Dense else layer for layer in body)
