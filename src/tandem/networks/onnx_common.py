"""Layers of `common_layers` as nodes of an ONNX graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tandem.networks import common_layers as c
from tandem.networks.plan import Layer, Weights
from tandem.types import Array

if TYPE_CHECKING:
    from tandem.networks.onnx import Graph


def _linear(g: Graph, layer: c.Linear, w: Weights, x: str) -> str:
    return g("MatMul", x, g.constant(w["kernel"]))


def _reshape(g: Graph, layer: c.Reshape, w: Weights, x: str) -> str:
    return g.reshape(g.float32(x) if layer.cast else x, (-1, *layer.shape))


def _channels_first(
    g: Graph, layer: c.Windowed, x: str, made: Callable[[str, dict[str, Any]], str]
) -> str:
    """What `made` makes of x with channels first, as ONNX wants them, and of the attributes of its
    windows; with the channels where they were."""
    axes, pads = len(layer.kernel), layer.pads
    attributes = {
        "kernel_shape": list(layer.kernel),
        "strides": list(layer.stride),
        "pads": [*pads[::2], *pads[1::2]],
    }
    if layer.trailing:
        return made(x, attributes)
    first = g("Transpose", x, perm=[0, axes + 1, *range(1, axes + 1)])
    return g("Transpose", made(first, attributes), perm=[0, *range(2, axes + 2), 1])


def _convolution(g: Graph, layer: c.Convolution, w: Weights, x: str) -> str:
    # [*k, C, filters] to [filters, C, *k]
    axes = range(len(layer.kernel))
    weights = [g.constant(np.transpose(w["kernel"], (-1, -2, *axes)))]
    if layer.bias:
        weights.append(g.constant(w["bias"]))
    return _channels_first(g, layer, x, lambda x, made: g("Conv", x, *weights, **made))


def _pool(g: Graph, layer: c.Pool, w: Weights, x: str) -> str:
    if not layer.average:
        return _channels_first(g, layer, x, lambda x, made: g("MaxPool", x, **made))
    count = int(layer.count_pads)
    return _channels_first(
        g, layer, x, lambda x, made: g("AveragePool", x, count_include_pad=count, **made)
    )


def _batch_norm(g: Graph, layer: c.BatchNorm, w: Weights, x: str) -> str:
    factor, offset = layer.folded(w)
    return g("Add", g("Mul", x, g.constant(factor)), g.constant(offset))


def _group_norm(g: Graph, layer: c.GroupNorm, w: Weights, x: str) -> str:
    axes = layer.before + 1 + layer.trailing
    # the channels' axis to the front, and back
    to = [0, layer.before + 1, *(i for i in range(1, axes + 1) if i != layer.before + 1)]
    back = [int(i) for i in np.argsort(to)]
    first = g("Transpose", x, perm=to)
    groups = g.reshape(first, (0, layer.groups, -1))
    ones, zeros = (g.constant(np.full(layer.groups, n)) for n in (1.0, 0.0))
    normed = g("InstanceNormalization", groups, ones, zeros, epsilon=float(layer.epsilon))
    out = g("Transpose", g("Reshape", normed, g("Shape", first)), perm=back)
    shape = (layer.width, *(1,) * layer.trailing)
    if layer.scale:
        out = g("Mul", out, g.constant(w["scale"].reshape(shape)))
    return g("Add", out, g.constant(w["bias"].reshape(shape))) if layer.bias else out


def _embedding(g: Graph, layer: c.Embedding, w: Weights, x: str) -> str:
    return g("Gather", g.constant(w["embeddings"]), g("Cast", x, to=g.types.INT64), axis=0)


def _lstm(g: Graph, layer: c.LSTM, w: Weights, x: str) -> str:
    def gates(name: str) -> Array:
        """[1, 4 units, ...] with the parts i, o, f, g, as ONNX has them."""
        i, f, g, o = np.split(w[name], 4, -1)
        return np.concatenate([i, o, f, g], -1).T[None]

    weights = [g.constant(gates("kernel")), g.constant(gates("recurrent"))]
    if layer.bias:  # ONNX adds two
        bias = gates("bias")
        weights.append(g.constant(np.concatenate([bias, np.zeros_like(bias)], -1)))
    steps = g("LSTM", g("Transpose", x, perm=[1, 0, 2]), *weights, hidden_size=layer.units)
    # [T, 1, B, units], with an axis of directions
    return g("Transpose", g("Squeeze", steps, g.constant([1], np.int64)), perm=[1, 0, 2])


def _steps(g: Graph, layer: c.Steps, w: Weights, x: str) -> str:
    return g("Gather", x, g.constant(-1, np.int64), axis=1) if layer.last else x


def _prelu(g: Graph, layer: c.PReLU, w: Weights, x: str) -> str:
    return g("PRelu", x, g.constant(w["alpha"]))


def _function(g: Graph, layer: c.Function, w: Weights, x: str) -> str:
    return FUNCTIONS[layer.name](g, x, *layer.parameters)


def _softplus(g: Graph, x: str, beta: float = 1.0) -> str:
    if beta == 1.0:
        return g("Softplus", x)
    return g("Div", g("Softplus", g("Mul", x, g.constant(beta))), g.constant(beta))


def _gelu_tanh(g: Graph, x: str) -> str:
    cube = g("Mul", g("Mul", x, x), g("Mul", x, g.constant(0.044715)))
    inner = g("Tanh", g("Mul", g("Add", x, cube), g.constant((2 / np.pi) ** 0.5)))
    return g("Mul", g("Mul", x, g.constant(0.5)), g("Add", inner, g.constant(1.0)))


def _threshold(g: Graph, x: str, edge: float, below: float) -> str:
    return g("Where", g("Greater", x, g.constant(edge)), x, g.constant(below))


def _rescale(g: Graph, x: str, scale: float, offset: float) -> str:
    return g("Add", g("Mul", g.float32(x), g.constant(scale)), g.constant(offset))


FUNCTIONS: dict[str, Callable[..., str]] = {
    "leaky_relu": lambda g, x, slope: g("LeakyRelu", x, alpha=slope),
    "hardtanh": lambda g, x, low, high: g("Clip", x, g.constant(low), g.constant(high)),
    "softsign": lambda g, x: g("Softsign", x),
    "mish": lambda g, x: g("Mul", x, g("Tanh", g("Softplus", x))),
    "softmax": lambda g, x: g("Softmax", x, axis=-1),
    "log_softmax": lambda g, x: g("LogSoftmax", x, axis=-1),
    "selu": lambda g, x: g("Selu", x, alpha=c.SELU[0], gamma=c.SELU[1]),
    "elu": lambda g, x, alpha: g("Elu", x, alpha=alpha),
    "celu": lambda g, x, alpha: g("Celu", x, alpha=alpha),
    "gelu_tanh": _gelu_tanh,
    "softplus": _softplus,
    "logsigmoid": lambda g, x: g("Neg", g("Softplus", g("Neg", x))),
    "hardsigmoid": lambda g, x: g("HardSigmoid", x, alpha=1 / 6, beta=0.5),
    "hardswish": lambda g, x: g("HardSwish", x),
    "tanhshrink": lambda g, x: g("Sub", x, g("Tanh", x)),
    "softshrink": lambda g, x, edge: g("Shrink", x, lambd=edge, bias=edge),
    "hardshrink": lambda g, x, edge: g("Shrink", x, lambd=edge, bias=0.0),
    "threshold": _threshold,
    "exp": lambda g, x: g("Exp", x),
    "rescale": _rescale,
}

LAYERS: dict[type[Layer], Callable[..., str]] = {
    c.Linear: _linear,
    c.Dropout: lambda g, layer, w, x: x,
    c.Reshape: _reshape,
    c.Convolution: _convolution,
    c.Pool: _pool,
    c.BatchNorm: _batch_norm,
    c.GroupNorm: _group_norm,
    c.Embedding: _embedding,
    c.LSTM: _lstm,
    c.Steps: _steps,
    c.PReLU: _prelu,
    c.Function: _function,
}
