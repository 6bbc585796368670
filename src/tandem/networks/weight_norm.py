"""Weight normalization (Salimans & Kingma 2016, arXiv:1602.07868): the length and direction of each
unit's weights are learned separately."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tandem import ops
from tandem.networks.plan import Conv, Dense, Layer, Plan, Streams, Weights
from tandem.types import Array


@dataclass(frozen=True)
class WeightNormDense(Dense):
    """Dense with the kernel g v / ||v|| (eq. 2), v: kernel [inputs, units], g: scale [units].
    Initial weights are those of Dense: g is the initial length of v."""

    def init(self, rng: np.random.Generator) -> Weights:
        return with_lengths(super().init(rng))

    def forward(self, w: Weights, x: Array) -> Array:
        return super().forward({**w, "kernel": normalized(w)}, x)


@dataclass(frozen=True)
class WeightNormConv(Conv):
    """Conv with the kernel g v / ||v||, with one length per filter. kernel [k, k, C, filters],
    scale [filters]."""

    def init(self, rng: np.random.Generator) -> Weights:
        return with_lengths(super().init(rng))

    def forward(self, w: Weights, x: Array) -> Array:
        return super().forward({**w, "kernel": normalized(w)}, x)


def normalized(w: Weights) -> Array:
    """Return the kernel [..., units] whose columns have the direction of "kernel" and the length
    "scale"."""
    v = w["kernel"]
    return v * (w["scale"] / lengths(v))


def lengths(v: Array) -> Array:
    """Return the lengths of the columns of v [..., units]."""
    xp = ops.of(v)
    flat = xp.reshape(v, (-1, v.shape[-1]))
    return xp.sqrt(xp.sum(flat * flat, 0))


def with_lengths(drawn: Weights) -> Weights:
    """Return kernel and bias, with the lengths of the kernel's columns as "scale"."""
    return {**drawn, "scale": lengths(drawn["kernel"])}


def weight_normed(body: Plan) -> Plan:
    """Return a feature extractor whose dense layers and convolutions have weight normalization."""
    plan: list[Layer] = []
    for layer in body:
        kind = {Dense: WeightNormDense, Conv: WeightNormConv}.get(type(layer))
        if kind is not None:
            layer = kind(**vars(layer))
        elif isinstance(layer, Streams):
            layer = replace(layer, plans={k: weight_normed(p) for k, p in layer.plans.items()})
        plan.append(layer)
    return tuple(plan)
