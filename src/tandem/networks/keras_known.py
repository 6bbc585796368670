"""Which Keras layers are known: what layers of a plan each of them is, and its variables by the
plan's names."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import keras

from tandem.networks import common_layers as c
from tandem.networks import plan as p
from tandem.networks.common_layers import Shape
from tandem.networks.plan import Layer, Plan
from tandem.spaces import Leaf

Known = list[tuple[Layer, dict[str, Any]]] | None  # layers, each with its variables by name

FUNCTIONS: dict[str, c.Function] = {
    "leaky_relu": c.Function("leaky_relu", (0.2,)),
    "relu6": c.Function("hardtanh", (0.0, 6.0)),
    "softmax": c.Function("softmax"),
    "log_softmax": c.Function("log_softmax"),
    "selu": c.Function("selu"),
    "celu": c.Function("celu", (1.0,)),
    "softsign": c.Function("softsign"),
    "mish": c.Function("mish"),
    "exponential": c.Function("exp"),
    "log_sigmoid": c.Function("logsigmoid"),
    "hard_sigmoid": c.Function("hardsigmoid"),
    "hard_silu": c.Function("hardswish"),
    "hard_tanh": c.Function("hardtanh", (-1.0, 1.0)),
    "tanh_shrink": c.Function("tanhshrink"),
    "soft_shrink": c.Function("softshrink", (0.5,)),
    "hard_shrink": c.Function("hardshrink", (0.5,)),
}


def recognise(model: Any, entering: Leaf) -> tuple[Plan, dict[str, Any]] | None:
    """The plan of a user's model that is a chain of known layers on such observations, and its
    variables by the plan's names; None where it is anything else, or where nothing in it is
    learned."""
    if not isinstance(model, keras.Model) or not model.built or not (row := chain(model)):
        return None
    found = _entrance(model, row[0], entering)
    shape = entering.shape
    if found is None:
        return None
    for layer, _ in found:
        shape = c.leaving(layer, shape)
    for part in row:
        new = known(part, shape)
        if new is None:
            return None
        for layer, _ in new:
            shape = c.leaving(layer, shape)
        found += new
    variables = {f"{i}/{n}": v for i, (_, own) in enumerate(found) for n, v in own.items()}
    return (tuple(layer for layer, _ in found), variables) if variables else None


def chain(model: Any) -> list[Any]:
    """The layers that a model calls one after the other, each once, and those of models in it; none
    where it does otherwise."""
    layers = []
    for layer in _in_a_row(model):
        inner = chain(layer) if isinstance(layer, keras.Model) else [layer]
        if not inner:
            return []
        layers += inner
    return layers


def _in_a_row(model: Any) -> list[Any]:
    if type(model) is keras.Sequential:
        return list(model.layers)
    if type(model).__name__ != "Functional" or len(model.inputs) != 1 or len(model.outputs) != 1:
        return []
    x, layers = model.inputs[0], []
    for layer in model.layers[1:]:
        if len(layer._inbound_nodes) != 1:
            return []
        (call,) = layer._inbound_nodes
        if len(call.input_tensors) != 1 or call.input_tensors[0] is not x or len(call.outputs) != 1:
            return []
        x = call.outputs[0]
        layers.append(layer)
    return layers if x is model.outputs[0] else []


def _entrance(model: Any, first: Any, entering: Leaf) -> Known:
    """What a model does with observations before its first layer: an axis more, numbers as
    float32."""
    symbolic = model.inputs[0]
    wanted, shape = tuple(symbolic.shape[1:]), entering.shape
    if wanted == (*shape, 1):
        shape = wanted
    elif len(wanted) != len(shape) or any(
        n not in (None, m) for n, m in zip(wanted, shape, strict=True)
    ):
        return None
    takes_integers = type(first) in (keras.layers.Embedding, keras.layers.Rescaling)
    cast = entering.dtype != "float32" and not takes_integers
    if cast and symbolic.dtype != "float32":
        return None
    return [(c.Reshape(shape, cast), {})] if cast or shape != entering.shape else []


def known(layer: Any, shape: Shape) -> Known:
    """What a layer is, for rows of this shape; None for a type or an option that no layer of a plan
    expresses."""
    if layer.compute_dtype != "float32" or layer.variable_dtype != "float32":
        return None
    make = KINDS.get(type(layer))
    return None if make is None else make(layer, shape)


def _named(layer: Any) -> str:
    """The name of a layer's activation if it is Keras's own of that name, else nothing."""
    name = getattr(layer.activation, "__name__", "")
    return name if getattr(keras.activations, name, None) is layer.activation else ""


def _activation(layer: Any, shape: Shape) -> Known:
    name = _named(layer)
    if name in FUNCTIONS:
        return [(FUNCTIONS[name], {})]
    return [(p.Activation(name), {})] if name in p.ACTIVATIONS else None


def _with_activation(layer: Any, made: Layer, weights: dict[str, Any], shape: Shape) -> Known:
    """A layer, and behind it its activation, if it has one."""
    then = [] if _named(layer) == "linear" else _activation(layer, shape)
    return None if then is None else [(made, weights), *then]


def _function(name: str, *parameters: float) -> Known:
    return [(c.Function(name, tuple(float(x) for x in parameters)), {})]


def _dense(layer: Any, shape: Shape) -> Known:
    if layer.use_bias:
        weights = {"kernel": layer.kernel, "bias": layer.bias}
        if (name := _named(layer)) in p.ACTIVATIONS:
            return [(p.Dense(shape[-1], layer.units, name), weights)]
        return _with_activation(layer, p.Dense(shape[-1], layer.units), weights, shape)
    made = c.Linear(shape[-1], layer.units)
    return _with_activation(layer, made, {"kernel": layer.kernel}, shape)


def _layer_norm(layer: Any, shape: Shape) -> Known:
    axes = [layer.axis] if isinstance(layer.axis, int) else list(layer.axis)
    last = axes in ([-1], [len(shape)])
    if not (last and layer.scale and layer.center) or layer.get_config().get("rms_scaling"):
        return None
    weights = {"scale": layer.gamma, "bias": layer.beta}
    return [(p.LayerNorm(shape[-1], layer.epsilon), weights)]


def _scale_and_bias(layer: Any) -> dict[str, Any]:
    scale = {"scale": layer.gamma} if layer.scale else {}
    return scale | ({"bias": layer.beta} if layer.center else {})


def _batch_norm(layer: Any, shape: Shape) -> Known:
    axis = layer.axis % (len(shape) + 1)
    trailing = len(shape) - axis
    width = c.channels_of(shape, trailing)
    made = c.BatchNorm(width, layer.epsilon, trailing, bool(layer.scale), bool(layer.center))
    moving = {"moving_mean": layer.moving_mean, "moving_variance": layer.moving_variance}
    return [(made, _scale_and_bias(layer) | moving)]


def _group_norm(layer: Any, shape: Shape) -> Known:
    if not isinstance(layer.axis, int):
        return None
    axis = layer.axis % (len(shape) + 1)
    trailing = len(shape) - axis
    width = c.channels_of(shape, trailing)
    has = bool(layer.scale), bool(layer.center)
    made = c.GroupNorm(width, int(layer.groups), layer.epsilon, axis - 1, trailing, *has)
    return [(made, _scale_and_bias(layer))]


def _relu(layer: Any, shape: Shape) -> Known:
    slope, highest = float(layer.negative_slope), layer.max_value
    if layer.threshold or (slope and highest is not None):
        return None
    if slope:
        return _function("leaky_relu", slope)
    return [(p.Activation("relu"), {})] if highest is None else _function("hardtanh", 0.0, highest)


def _elu(layer: Any, shape: Shape) -> Known:
    plain = layer.alpha == 1.0
    return [(p.Activation("elu"), {})] if plain else _function("elu", layer.alpha)


def _prelu(layer: Any, shape: Shape) -> Known:
    # one slope for each number of a vector
    return [(c.PReLU(shape[0]), {"alpha": layer.alpha})] if len(shape) == 1 else None


def _softmax(layer: Any, shape: Shape) -> Known:
    return _function("softmax") if layer.axis in (-1, len(shape)) else None


def _rescaling(layer: Any, shape: Shape) -> Known:
    numbers = isinstance(layer.scale, (int, float)) and isinstance(layer.offset, (int, float))
    return _function("rescale", layer.scale, layer.offset) if numbers else None


def _flatten(layer: Any, shape: Shape) -> Known:
    # with channels first, Keras moves them to the end before it flattens
    plain = layer.data_format == "channels_last" or len(shape) < 2
    return [(p.Flatten(), {})] if plain else None


def _reshape(layer: Any, shape: Shape) -> Known:
    sizes = tuple(layer.target_shape)
    if -1 in sizes:
        sizes = tuple(-(prod(shape) // prod(sizes)) if n == -1 else n for n in sizes)
    return [(c.Reshape(sizes), {})]


def _embedding(layer: Any, shape: Shape) -> Known:
    # with masks, the layers behind it do something else
    if layer.mask_zero or getattr(layer, "lora_enabled", False):
        return None
    made = c.Embedding(layer.input_dim, layer.output_dim)
    return [(made, {"embeddings": layer.embeddings})]


def _lstm(layer: Any, shape: Shape) -> Known:
    options = layer.get_config()
    given = {n: options[n] for n in ("activation", "recurrent_activation")}
    if given != {"activation": "tanh", "recurrent_activation": "sigmoid"} or any(
        options[n] for n in ("return_state", "go_backwards", "stateful")
    ):
        return None
    made = c.LSTM(shape[-1], layer.units, bool(layer.use_bias))
    weights = {"kernel": layer.cell.kernel, "recurrent": layer.cell.recurrent_kernel}
    if layer.use_bias:
        weights["bias"] = layer.cell.bias
    return [(made, weights), (c.Steps(not layer.return_sequences), {})]


def _trailing(layer: Any, axes: int) -> int:
    return axes if layer.data_format == "channels_first" else 0


def _pads(padding: str, sides: Shape, kernel: Shape, stride: Shape) -> tuple[int, ...]:
    """How far "same" goes on both sides: as many places as the stride leaves, and one more behind
    where the rest is odd."""
    if padding == "causal":
        return (kernel[0] - 1, 0)
    if padding == "valid":
        return (0, 0) * len(sides)
    pads: list[int] = []
    for n, k, s in zip(sides, kernel, stride, strict=True):
        total = max((-(-n // s) - 1) * s + k - n, 0)
        pads += [total // 2, total - total // 2]
    return tuple(pads)


def _convolution(layer: Any, shape: Shape) -> Known:
    axes = len(layer.kernel_size)
    if layer.groups != 1 or set(layer.dilation_rate) != {1}:
        return None
    trailing, kernel, stride = _trailing(layer, axes), layer.kernel_size, layer.strides
    sides = shape[1:] if trailing else shape[:-1]
    made = c.Convolution(
        tuple(kernel),
        tuple(stride),
        _pads(layer.padding, sides, kernel, stride),
        trailing,
        c.channels_of(shape, trailing),
        layer.filters,
        bool(layer.use_bias),
    )
    bias = {"bias": layer.bias} if layer.use_bias else {}
    return _with_activation(layer, made, {"kernel": layer.kernel, **bias}, shape)


def _pool(average: bool) -> Callable[[Any, Shape], Known]:
    def make(layer: Any, shape: Shape) -> Known:
        size, stride = tuple(layer.pool_size), tuple(layer.strides)
        trailing = _trailing(layer, len(size))
        pads = _pads(layer.padding, shape[1:] if trailing else shape[:-1], size, stride)
        # Keras on torch repeats the numbers at the edge where the sides differ
        if average and pads[::2] != pads[1::2] and keras.backend.backend() == "torch":
            return None
        return [(c.Pool(size, stride, pads, trailing, average, False), {})]

    return make


def _global_pool(average: bool) -> Callable[[Any, Shape], Known]:
    def make(layer: Any, shape: Shape) -> Known:
        trailing = _trailing(layer, len(shape) - 1)
        size = shape[1:] if trailing else shape[:-1]
        made = c.Pool(size, size, (0, 0) * len(size), trailing, average)
        then: Any = [] if layer.keepdims else [(c.Reshape((c.channels_of(shape, trailing),)), {})]
        return [(made, {}), *then]

    return make


def _dropout(layer: Any, shape: Shape) -> Known:
    return [(c.Dropout(), {})]


_LAYERS = keras.layers
KINDS: dict[type, Callable[[Any, Shape], Known]] = {
    _LAYERS.Dense: _dense,
    _LAYERS.Activation: _activation,
    _LAYERS.Identity: lambda layer, shape: [(p.Activation("linear"), {})],
    _LAYERS.ReLU: _relu,
    _LAYERS.LeakyReLU: lambda layer, shape: _function("leaky_relu", layer.negative_slope),
    _LAYERS.ELU: _elu,
    _LAYERS.PReLU: _prelu,
    _LAYERS.Softmax: _softmax,
    _LAYERS.LayerNormalization: _layer_norm,
    _LAYERS.BatchNormalization: _batch_norm,
    _LAYERS.GroupNormalization: _group_norm,
    _LAYERS.Rescaling: _rescaling,
    _LAYERS.Flatten: _flatten,
    _LAYERS.Reshape: _reshape,
    _LAYERS.Embedding: _embedding,
    _LAYERS.LSTM: _lstm,
    **dict.fromkeys((_LAYERS.Conv1D, _LAYERS.Conv2D), _convolution),
    **dict.fromkeys((_LAYERS.MaxPooling1D, _LAYERS.MaxPooling2D), _pool(False)),
    **dict.fromkeys((_LAYERS.AveragePooling1D, _LAYERS.AveragePooling2D), _pool(True)),
    **dict.fromkeys((_LAYERS.GlobalMaxPooling1D, _LAYERS.GlobalMaxPooling2D), _global_pool(False)),
    **dict.fromkeys(
        (_LAYERS.GlobalAveragePooling1D, _LAYERS.GlobalAveragePooling2D), _global_pool(True)
    ),
    **dict.fromkeys(
        (
            _LAYERS.Dropout,
            _LAYERS.SpatialDropout1D,
            _LAYERS.SpatialDropout2D,
            _LAYERS.AlphaDropout,
            _LAYERS.GaussianDropout,
            _LAYERS.GaussianNoise,
        ),
        _dropout,
    ),
}


def mode_dependent_layer(model: Any) -> str:
    """See `backends.backend.Network`."""
    moving = _LAYERS.BatchNormalization, _LAYERS.SpectralNormalization

    def depends(layer: Any) -> bool:
        if isinstance(layer, moving):
            return bool(layer.trainable)
        if hasattr(layer, "recurrent_dropout"):  # has a generator in any case
            return bool(layer.dropout > 0 or layer.recurrent_dropout > 0)
        return bool(layer._seed_generators)

    return next((type(x).__name__ for x in model._flatten_layers() if depends(x)), "")
