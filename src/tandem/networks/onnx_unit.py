"""Layers whose weights have length 1 as nodes of an ONNX graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tandem.math.optimization import SHORTEST
from tandem.networks.plan import Layer, Weights
from tandem.networks.simbav2 import SHIFT, LerpBlock, SphericalEmbedding, UnitHead
from tandem.networks.unit import KERNEL, UnitDense

Graph = Any  # `onnx.Graph`, which has these layers among its own


def _on_sphere(g: Graph, x: str) -> Any:
    square = g("ReduceSum", g("Mul", x, x), g.constant([-1], np.int64), keepdims=1)
    return g("Div", x, g("Sqrt", g("Add", square, g.constant(SHORTEST**2))))


def _embedding(g: Graph, layer: SphericalEmbedding, w: Weights, x: str) -> Any:
    none = g("Mul", g.columns(x, 0, 1), g.constant(0.0))
    shifted = g("Concat", x, g("Add", none, g.constant(SHIFT)), axis=-1)
    product = g("MatMul", _on_sphere(g, shifted), g.constant(w[KERNEL]))
    return _on_sphere(g, g("Mul", product, g.constant(w["scaler"])))


def _lerp_block(g: Graph, layer: LerpBlock, w: Weights, x: str) -> Any:
    wide = g("Mul", g("MatMul", x, g.constant(w[f"wide_{KERNEL}"])), g.constant(w["scaler"]))
    wide = g.activate(layer.activation, wide)
    far = _on_sphere(g, g("MatMul", wide, g.constant(w[f"narrow_{KERNEL}"])))
    step = g("Mul", g("Sub", far, x), g.constant(layer.steps(w)))
    return _on_sphere(g, g("Add", x, step))


def _unit_dense(g: Graph, layer: UnitDense, w: Weights, x: str) -> Any:
    return g.activate(layer.activation, g("MatMul", x, g.constant(w[KERNEL])))


def _unit_head(g: Graph, layer: UnitHead, w: Weights, x: str) -> Any:
    hidden = g("MatMul", x, g.constant(w[f"hidden_{KERNEL}"]))
    hidden = g("Mul", hidden, g.constant(w["scaler"]))
    out = g("Add", g("MatMul", hidden, g.constant(w[KERNEL])), g.constant(w["bias"]))
    return g.activate(layer.activation, out)


LAYERS: dict[type[Layer], Callable[..., Any]] = {
    SphericalEmbedding: _embedding,
    LerpBlock: _lerp_block,
    UnitDense: _unit_dense,
    UnitHead: _unit_head,
}
