"""Networks with a memory as ONNX graphs: one step of them, from observations and the state before
to what the head says, and the state after."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tandem.networks.plan import Layer, Weights, select
from tandem.networks.recurrent import GRU, LSTMCell, Memory, Recurrent

Graph = Any  # `onnx.Graph`, which has these layers among its own


def _recurrent(g: Graph, layer: Recurrent, w: Weights, x: dict[str, Any]) -> str:
    """x: the values "obs" and "state"."""
    features = g.plan(layer.body, select(w, "body"), x["obs"])
    state = STEPS[type(layer.cell)](g, layer.cell, select(w, "cell"), features, x["state"])
    said = g.plan(layer.head, select(w, "head"), state)
    return str(g("Concat", said, state, axis=-1))


def _gru(g: Graph, cell: Memory, w: Weights, x: str, state: str) -> str:
    n, (bias, again_bias) = cell.units, w["bias"]
    outer = g("Add", g("MatMul", x, g.constant(w["kernel"])), g.constant(bias))
    again = g("Add", g("MatMul", state, g.constant(w["recurrent"])), g.constant(again_bias))
    both = (g.columns(sums, 0, 2 * n) for sums in (outer, again))
    gates = g("Sigmoid", g("Add", *both))
    kept, reset = g.columns(gates, 0, n), g.columns(gates, n, 2 * n)
    old = g("Mul", reset, g.columns(again, 2 * n, 3 * n))
    new = g("Tanh", g("Add", g.columns(outer, 2 * n, 3 * n), old))
    rest = g("Sub", g.constant(1.0), kept)
    return str(g("Add", g("Mul", kept, state), g("Mul", rest, new)))


def _lstm(g: Graph, cell: Memory, w: Weights, x: str, state: str) -> str:
    n = cell.units
    before, kept = g.columns(state, 0, n), g.columns(state, n, 2 * n)
    again = g("MatMul", before, g.constant(w["recurrent"]))
    sums = g("Add", g("Add", g("MatMul", x, g.constant(w["kernel"])), again), g.constant(w["bias"]))
    i, f, new, o = (g.columns(sums, k * n, (k + 1) * n) for k in range(4))
    entering = g("Mul", g("Sigmoid", i), g("Tanh", new))
    after = g("Add", g("Mul", g("Sigmoid", f), kept), entering)
    return str(g("Concat", g("Mul", g("Sigmoid", o), g("Tanh", after)), after, axis=-1))


STEPS: dict[type[Memory], Callable[[Graph, Memory, Weights, str, str], str]] = {
    GRU: _gru,
    LSTMCell: _lstm,
}
LAYERS: dict[type[Layer], Callable[..., str]] = {Recurrent: _recurrent}
