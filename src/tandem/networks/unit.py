"""Weights of which each unit's have length 1: they are projected after each step of an optimizer,
which knows them by their name."""

from __future__ import annotations

import numpy as np

from tandem.math.optimization import unit_columns
from tandem.networks.plan import draw
from tandem.types import Array

KERNEL = "unit_kernel"  # ends the names of such weights [inputs, units]


def is_unit(name: str) -> bool:
    """Whether the columns of the weight of this name are kept at length 1."""
    return name.endswith(KERNEL)


def unit_kernel(rng: np.random.Generator, inputs: int, units: int) -> Array:
    """First weights [inputs, units]: orthogonal, each unit's of length 1."""
    return unit_columns(draw(rng, (inputs, units), "orthogonal", 1.0)["kernel"])
