"""Layers of plans as nodes of an ONNX graph. A recurrent network is exported as a single step: from
observations and the previous state to the head's output and the next state."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from tandem.math.optimization import SHORTEST
from tandem.networks.implicit import Cosines, Product
from tandem.networks.noisy import NoisyDense
from tandem.networks.plan import (
    Activation,
    Branches,
    Cast,
    Conv,
    Dense,
    Dueling,
    Flatten,
    Half,
    Image,
    Layer,
    LayerNorm,
    Normalize,
    OneHot,
    Scale,
    Streams,
    Weights,
    select,
    width,
)
from tandem.networks.policy_layers import DenseWithInputs, StateDependent, WithLogStd
from tandem.networks.recurrent import GRU, LSTMCell, Memory, Recurrent
from tandem.networks.renorm import BatchRenorm
from tandem.networks.simba import ResidualBlock, RunningNorm
from tandem.networks.simbav2 import SHIFT, LerpBlock, SphericalEmbedding, UnitHead
from tandem.networks.unit import KERNEL, UnitDense
from tandem.networks.weight_norm import WeightNormConv, WeightNormDense, normalized
from tandem.types import Array

if TYPE_CHECKING:
    from tandem.networks.onnx import Graph


def _dense(g: Graph, layer: Dense, w: Weights, x: str) -> str:
    # not Gemm, which does not accept sequences
    product = g("MatMul", x, g.constant(w["kernel"]))
    return g.activate(layer.activation, g("Add", product, g.constant(w["bias"])))


def _state_dependent(g: Graph, layer: StateDependent, w: Weights, x: str) -> str:
    mean = _dense(g, layer, w, x)
    if layer.limit:
        mean = g("Clip", mean, g.constant(-layer.limit), g.constant(layer.limit))
    features = g.reshape(x, (-1, layer.inputs, 1))
    parts = g("Mul", features, g.constant(np.exp(w["log_std"])))
    return g("Concat", mean, g.reshape(parts, (-1, layer.inputs * layer.units)), axis=-1)


def _noisy_dense(g: Graph, layer: NoisyDense, w: Weights, x: str) -> str:
    settled = {n: w[n] + w[f"{n}_sigma"] * w[f"{n}_noise"] for n in ("kernel", "bias")}
    return _dense(g, layer, settled, x)


def _weight_normed(plain: Callable[..., str]) -> Callable[..., str]:
    return lambda g, layer, w, x: plain(g, layer, {**w, "kernel": normalized(w)}, x)


def _conv(g: Graph, layer: Conv, w: Weights, x: str) -> str:
    # HWIO to OIHW
    kernel = g.constant(np.transpose(w["kernel"], (3, 2, 0, 1)))
    bias = g.constant(w["bias"])
    first = g("Transpose", x, perm=[0, 3, 1, 2])  # ONNX uses channels first
    out = g(
        "Conv", first, kernel, bias, kernel_shape=[layer.kernel] * 2, strides=[layer.stride] * 2
    )
    return g.activate(layer.activation, g("Transpose", out, perm=[0, 2, 3, 1]))


def _one_hot(g: Graph, layer: OneHot, w: Weights, x: str) -> str:
    values = g.constant([0.0, 1.0])
    if len(layer.sizes) == 1:
        symbol = g("Sub", g.reshape(x, (-1,)), g.constant(layer.start, np.int64))
        return g("OneHot", symbol, g.constant(layer.sizes[0], np.int64), values)
    columns = [g("Gather", x, g.constant(i, np.int64), axis=1) for i in range(len(layer.sizes))]
    parts = [
        g("OneHot", c, g.constant(n, np.int64), values)
        for c, n in zip(columns, layer.sizes, strict=True)
    ]
    return g("Concat", *parts, axis=-1)


def _image(g: Graph, layer: Image, w: Weights, x: str) -> str:
    scaled = g("Mul", g.float32(x), g.constant(1 / 255))
    return g("Transpose", scaled, perm=[0, 2, 3, 1]) if layer.channels_first else scaled


def _normalize(g: Graph, layer: Normalize, w: Weights, x: str) -> str:
    scaled = _standardized(g, x, w["mean"], w["variance"], 1e-8)
    return g("Clip", scaled, g.constant(-layer.clip), g.constant(layer.clip))


def _standardized(g: Graph, x: str, mean: Array, variance: Array, epsilon: float) -> str:
    deviation = g.constant(np.sqrt(variance + np.float32(epsilon)))
    return g("Div", g("Sub", x, g.constant(mean)), deviation)


def _running_norm(g: Graph, layer: RunningNorm | BatchRenorm, w: Weights, x: str) -> str:
    return _standardized(g, x, w["moving_mean"], w["moving_variance"], layer.epsilon)


def _residual(g: Graph, layer: ResidualBlock, w: Weights, x: str) -> str:
    inner = x
    for name, part in layer.parts.items():
        own = {n.removeprefix(f"{name}_"): v for n, v in w.items() if n.startswith(f"{name}_")}
        inner = LAYERS[type(part)](g, part, own, inner)
    return g("Add", x, inner)


def _beside(g: Graph, x: str, numbers: Array) -> str:
    """Append the same numbers to each row of x [batch, ...]."""
    none = g("Mul", g.columns(x, 0, 1), g.constant(0.0))
    return g("Concat", x, g("Add", none, g.constant(numbers)), axis=-1)


def _streams(g: Graph, layer: Streams, w: Weights, x: Array) -> str:
    parts = [
        g.plan(plan, select(w, name), layer.part(x, name)) for name, plan in layer.plans.items()
    ]
    return g("Concat", *parts, axis=-1) if len(parts) > 1 else parts[0]


def _product(g: Graph, layer: Product, w: Weights, x: Array) -> str:
    features, embedding = (g.plan(p, select(w, k), x[k]) for k, p in layer.plans.items())
    return g("Mul", g("Unsqueeze", features, g.constant([1], np.int64)), embedding)


def _cosines(g: Graph, layer: Cosines, w: Weights, x: str) -> str:
    angles = np.arange(layer.count, dtype=np.float32) * np.pi
    apart = g("Unsqueeze", x, g.constant([-1], np.int64))
    return g("Cos", g("Mul", apart, g.constant(angles)))


def _dueling(g: Graph, layer: Dueling, w: Weights, x: str) -> str:
    value = g.plan(layer.value, select(w, "value"), x)
    advantage = g.plan(layer.advantage, select(w, "advantage"), x)
    each, numbers = width(layer.value), width(layer.advantage)
    if each > 1:  # distributions, one choice after another
        apart = g.reshape(advantage, (-1, numbers // each, each))
        mean = g("ReduceMean", apart, axes=[1], keepdims=1)
        apart = g("Add", g.reshape(value, (-1, 1, each)), g("Sub", apart, mean))
        return g.reshape(apart, (-1, numbers))
    return g("Add", value, g("Sub", advantage, g("ReduceMean", advantage, axes=[-1], keepdims=1)))


def _recurrent(g: Graph, layer: Recurrent, w: Weights, x: dict[str, str]) -> str:
    """Export a recurrent network. x: the values "obs" and "state"."""
    features = g.plan(layer.body, select(w, "body"), x["obs"])
    state = STEPS[type(layer.cell)](g, layer.cell, select(w, "cell"), features, x["state"])
    said = g.plan(layer.head, select(w, "head"), state)
    return g("Concat", said, state, axis=-1)


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
    return g("Add", g("Mul", kept, state), g("Mul", rest, new))


def _lstm(g: Graph, cell: Memory, w: Weights, x: str, state: str) -> str:
    n = cell.units
    before, kept = g.columns(state, 0, n), g.columns(state, n, 2 * n)
    again = g("MatMul", before, g.constant(w["recurrent"]))
    sums = g("Add", g("Add", g("MatMul", x, g.constant(w["kernel"])), again), g.constant(w["bias"]))
    i, f, new, o = (g.columns(sums, k * n, (k + 1) * n) for k in range(4))
    entering = g("Mul", g("Sigmoid", i), g("Tanh", new))
    after = g("Add", g("Mul", g("Sigmoid", f), kept), entering)
    return g("Concat", g("Mul", g("Sigmoid", o), g("Tanh", after)), after, axis=-1)


STEPS: dict[type[Memory], Callable[[Graph, Memory, Weights, str, str], str]] = {
    GRU: _gru,
    LSTMCell: _lstm,
}


def _on_sphere(g: Graph, x: str) -> str:
    square = g("ReduceSum", g("Mul", x, x), g.constant([-1], np.int64), keepdims=1)
    return g("Div", x, g("Sqrt", g("Add", square, g.constant(SHORTEST**2))))


def _spherical_embedding(g: Graph, layer: SphericalEmbedding, w: Weights, x: str) -> str:
    product = g("MatMul", _on_sphere(g, _beside(g, x, [SHIFT])), g.constant(w[KERNEL]))
    return _on_sphere(g, g("Mul", product, g.constant(w["scaler"])))


def _lerp_block(g: Graph, layer: LerpBlock, w: Weights, x: str) -> str:
    wide = g("Mul", g("MatMul", x, g.constant(w[f"wide_{KERNEL}"])), g.constant(w["scaler"]))
    wide = g.activate(layer.activation, wide)
    far = _on_sphere(g, g("MatMul", wide, g.constant(w[f"narrow_{KERNEL}"])))
    step = g("Mul", g("Sub", far, x), g.constant(layer.steps(w)))
    return _on_sphere(g, g("Add", x, step))


def _unit_head(g: Graph, layer: UnitHead, w: Weights, x: str) -> str:
    hidden = g("MatMul", x, g.constant(w[f"hidden_{KERNEL}"]))
    hidden = g("Mul", hidden, g.constant(w["scaler"]))
    out = g("Add", g("MatMul", hidden, g.constant(w[KERNEL])), g.constant(w["bias"]))
    return g.activate(layer.activation, out)


LAYERS: dict[type[Layer], Callable[..., str]] = {
    Dense: _dense,
    NoisyDense: _noisy_dense,
    DenseWithInputs: lambda g, layer, w, x: g("Concat", _dense(g, layer, w, x), x, axis=-1),
    StateDependent: _state_dependent,
    Conv: _conv,
    WeightNormDense: _weight_normed(_dense),
    WeightNormConv: _weight_normed(_conv),
    Activation: lambda g, layer, w, x: g.activate(layer.activation, x),
    Flatten: lambda g, layer, w, x: g("Flatten", x, axis=1),
    Cast: lambda g, layer, w, x: g.reshape(g.float32(x), (-1, layer.width)),
    OneHot: _one_hot,
    Image: _image,
    Normalize: _normalize,
    LayerNorm: lambda g, layer, w, x: g(
        "LayerNormalization",
        x,
        g.constant(w["scale"]),
        g.constant(w["bias"]),
        axis=-1,
        epsilon=layer.epsilon,
    ),
    BatchRenorm: lambda g, layer, w, x: g(
        "Add",
        g("Mul", _running_norm(g, layer, w, x), g.constant(w["scale"])),
        g.constant(w["bias"]),
    ),
    RunningNorm: _running_norm,
    ResidualBlock: _residual,
    Scale: lambda g, layer, w, x: _beside(g, x, w["log_std"]),
    WithLogStd: lambda g, layer, w, x: _beside(g, x, w["log_std"]),
    Branches: _streams,
    Product: _product,
    Cosines: _cosines,
    Streams: _streams,
    Half: lambda g, layer, w, x: g.columns(x, layer.place.start, layer.place.stop),
    Dueling: _dueling,
    Recurrent: _recurrent,
    SphericalEmbedding: _spherical_embedding,
    LerpBlock: _lerp_block,
    UnitDense: lambda g, layer, w, x: g.activate(
        layer.activation, g("MatMul", x, g.constant(w[KERNEL]))
    ),
    UnitHead: _unit_head,
}
