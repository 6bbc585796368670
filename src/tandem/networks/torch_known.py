"""Which torch modules are known: what layer of a plan each of them is, and where that keeps its
weights."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch import nn

from tandem.networks import common_layers as c
from tandem.networks import plan as p
from tandem.networks.common_layers import Shape
from tandem.networks.plan import Layer, Plan
from tandem.networks.torch_layers import ACTIVATIONS
from tandem.networks.torch_sequences import EveryStep, LastStep
from tandem.spaces import Leaf

# type -> (function, attributes that are its parameters)
FUNCTIONS: dict[type[nn.Module], tuple[str, tuple[str, ...]]] = {
    nn.LeakyReLU: ("leaky_relu", ("negative_slope",)),
    nn.Hardtanh: ("hardtanh", ("min_val", "max_val")),
    nn.ReLU6: ("hardtanh", ("min_val", "max_val")),
    nn.Softsign: ("softsign", ()),
    nn.Mish: ("mish", ()),
    nn.SELU: ("selu", ()),
    nn.ELU: ("elu", ("alpha",)),
    nn.CELU: ("celu", ("alpha",)),
    nn.Softplus: ("softplus", ("beta",)),
    nn.LogSigmoid: ("logsigmoid", ()),
    nn.Hardsigmoid: ("hardsigmoid", ()),
    nn.Hardswish: ("hardswish", ()),
    nn.Tanhshrink: ("tanhshrink", ()),
    nn.Softshrink: ("softshrink", ("lambd",)),
    nn.Hardshrink: ("hardshrink", ("lambd",)),
    nn.Threshold: ("threshold", ("threshold", "value")),
}
BY_TYPE = {kind: name for name, kind in ACTIVATIONS.items()}
# what an activation has to be like to be the plan's own of that name
PLAIN: dict[type[nn.Module], tuple[str, Any]] = {
    nn.GELU: ("approximate", "none"),
    nn.ELU: ("alpha", 1.0),
    nn.Softplus: ("beta", 1.0),
}


def recognise(module: Any, entering: Leaf) -> Plan | None:
    """The plan of a user's module that is a chain of known layers on such observations; None where
    it is anything else, or where nothing in it is learned."""
    plan: list[Layer] = []
    shape = entering.shape
    for part in chain(module):
        layer = known(part, shape)
        # an LSTM's outputs are taken by the module behind it, and by no other
        if layer is None or isinstance(layer, c.Steps) != bool(
            plan and isinstance(plan[-1], c.LSTM)
        ):
            return None
        plan.append(layer)
        shape = c.leaving(layer, shape)
    learned = any(w.numel() for w in module.parameters())
    return tuple(plan) if learned and not isinstance(plan[-1], c.LSTM) else None


def chain(module: Any) -> list[Any]:
    """The modules that `module` calls one after the other: those of a Sequential, and of those in
    it, else itself alone."""
    # a subclass may call them otherwise
    if type(module) is not nn.Sequential or not as_written(module):
        return [module]
    return [inner for part in module for inner in chain(part)]


def as_written(part: nn.Module) -> bool:
    """Whether calling a module is its class's forward, and nothing besides."""
    return not (part._forward_hooks or part._forward_pre_hooks or "forward" in vars(part))


def known(part: Any, shape: Shape) -> Layer | None:
    """The layer that a module is, for rows of this shape; None for a type or an option that no
    layer expresses."""
    floats = [t for t in (*part.parameters(), *part.buffers()) if t.is_floating_point()]
    if not as_written(part) or any(t.dtype != torch.float32 for t in floats):
        return None
    kind = type(part)
    if kind is nn.Softplus and part.threshold != 20:  # far below, it shows
        return None
    if kind in BY_TYPE:
        name, wanted = PLAIN.get(kind, ("training", part.training))
        if getattr(part, name) == wanted:
            return p.Activation(BY_TYPE[kind])
    if kind is nn.GELU:
        return c.Function("gelu_tanh") if part.approximate == "tanh" else None
    if kind in FUNCTIONS:
        name, attributes = FUNCTIONS[kind]
        return c.Function(name, tuple(float(getattr(part, a)) for a in attributes))
    make = KINDS.get(kind)
    return None if make is None else make(part, shape)


def _linear(part: nn.Linear, shape: Shape) -> Layer:
    kind = c.Linear if part.bias is None else p.Dense
    return kind(part.in_features, part.out_features)


def _layer_norm(part: nn.LayerNorm, shape: Shape) -> Layer | None:
    plain = len(part.normalized_shape) == 1 and part.elementwise_affine and part.bias is not None
    return p.LayerNorm(shape[-1], part.eps) if plain else None


def _batch_norm(axes: int) -> Callable[[Any, Shape], Layer | None]:
    def make(part: Any, shape: Shape) -> Layer | None:
        # without a momentum its average goes by a count, without statistics by the batch
        if not part.track_running_stats or part.momentum is None or len(shape) > axes + 1:
            return None
        affine = bool(part.affine)
        return c.BatchNorm(part.num_features, part.eps, len(shape) - 1, affine, affine)

    return make


def _group_norm(part: nn.GroupNorm, shape: Shape) -> Layer:
    affine = bool(part.affine)
    return c.GroupNorm(
        part.num_channels, part.num_groups, part.eps, 0, len(shape) - 1, affine, affine
    )


def _dropout(part: Any, shape: Shape) -> Layer:
    return c.Dropout()


def _flatten(part: nn.Flatten, shape: Shape) -> Layer | None:
    return p.Flatten() if part.start_dim == 1 and part.end_dim in (-1, len(shape)) else None


def _unflatten(part: nn.Unflatten, shape: Shape) -> Layer | None:
    if part.dim != 1 or not all(isinstance(n, int) for n in part.unflattened_size):
        return None
    sizes, whole = tuple(part.unflattened_size), shape[0]
    if -1 in sizes:
        sizes = tuple(-(whole // prod(sizes)) if n == -1 else n for n in sizes)
    return c.Reshape((*sizes, *shape[1:]))


def _embedding(part: nn.Embedding, shape: Shape) -> Layer | None:
    # max_norm changes the weights in a forward pass
    if part.max_norm is not None or part.sparse:
        return None
    return c.Embedding(part.num_embeddings, part.embedding_dim)


def _lstm(part: nn.LSTM, shape: Shape) -> Layer | None:
    plain = part.num_layers == 1 and part.batch_first and not part.bidirectional
    if not plain or part.proj_size or len(shape) != 2:
        return None
    return c.LSTM(part.input_size, part.hidden_size, bool(part.bias))


def _prelu(part: nn.PReLU, shape: Shape) -> Layer | None:
    # of more axes, its slopes are those of the channels, which come first
    several = part.num_parameters > 1 and len(shape) > 1
    return None if several else c.PReLU(part.num_parameters)


def _rrelu(part: nn.RReLU, shape: Shape) -> Layer:
    # slopes are drawn in training; an agent acts by their mean
    return c.Function("leaky_relu", ((part.lower + part.upper) / 2,))


def _along_last(name: str) -> Callable[[Any, Shape], Layer | None]:
    return lambda part, shape: c.Function(name) if part.dim in (-1, len(shape)) else None


def _each(value: Any, axes: int) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,) * axes


def _convolution(axes: int) -> Callable[[Any, Shape], Layer | None]:
    def make(part: Any, shape: Shape) -> Layer | None:
        plain = part.groups == 1 and part.padding_mode == "zeros" and set(part.dilation) == {1}
        if not plain or len(shape) != axes + 1:
            return None
        sides = [(0, 0)] * axes
        if part.padding == "same":
            sides = [((k - 1) // 2, k - 1 - (k - 1) // 2) for k in part.kernel_size]
        elif part.padding != "valid":
            sides = [(n, n) for n in part.padding]
        return c.Convolution(
            part.kernel_size,
            part.stride,
            tuple(n for side in sides for n in side),
            trailing=axes,
            channels=part.in_channels,
            filters=part.out_channels,
            bias=part.bias is not None,
        )

    return make


def _pool(axes: int, average: bool) -> Callable[[Any, Shape], Layer | None]:
    def make(part: Any, shape: Shape) -> Layer | None:
        dilation = _each(getattr(part, "dilation", 1), axes)
        if (
            part.ceil_mode
            or set(dilation) != {1}
            or len(shape) != axes + 1
            or getattr(part, "divisor_override", None)
            or getattr(part, "return_indices", False)
        ):
            return None
        return c.Pool(
            _each(part.kernel_size, axes),
            _each(part.stride, axes),
            tuple(n for n in _each(part.padding, axes) for _ in range(2)),
            trailing=axes,
            average=average,
            count_pads=bool(getattr(part, "count_include_pad", True)),
        )

    return make


def _adaptive_pool(axes: int, average: bool) -> Callable[[Any, Shape], Layer | None]:
    """Known where every window has the same length."""

    def make(part: Any, shape: Shape) -> Layer | None:
        if len(shape) != axes + 1 or getattr(part, "return_indices", False):
            return None
        wanted = zip(_each(part.output_size, axes), shape[1:], strict=True)
        places = [n if out is None else out for out, n in wanted]
        if any(n % out for out, n in zip(places, shape[1:], strict=True)):
            return None
        size = tuple(n // out for out, n in zip(places, shape[1:], strict=True))
        return c.Pool(size, size, (0, 0) * axes, trailing=axes, average=average)

    return make


KINDS: dict[type[nn.Module], Callable[[Any, Shape], Layer | None]] = {
    nn.Linear: _linear,
    nn.LayerNorm: _layer_norm,
    nn.BatchNorm1d: _batch_norm(1),
    nn.BatchNorm2d: _batch_norm(2),
    nn.GroupNorm: _group_norm,
    nn.Flatten: _flatten,
    nn.Unflatten: _unflatten,
    nn.Embedding: _embedding,
    nn.LSTM: _lstm,
    LastStep: lambda part, shape: c.Steps(True),
    EveryStep: lambda part, shape: c.Steps(False),
    nn.PReLU: _prelu,
    nn.RReLU: _rrelu,
    nn.Softmax: _along_last("softmax"),
    nn.LogSoftmax: _along_last("log_softmax"),
    **dict.fromkeys(
        (
            nn.Dropout,
            nn.Dropout1d,
            nn.Dropout2d,
            nn.AlphaDropout,
            nn.FeatureAlphaDropout,
        ),
        _dropout,
    ),
    nn.Conv1d: _convolution(1),
    nn.Conv2d: _convolution(2),
    nn.MaxPool1d: _pool(1, False),
    nn.MaxPool2d: _pool(2, False),
    nn.AvgPool1d: _pool(1, True),
    nn.AvgPool2d: _pool(2, True),
    nn.AdaptiveMaxPool1d: _adaptive_pool(1, False),
    nn.AdaptiveMaxPool2d: _adaptive_pool(2, False),
    nn.AdaptiveAvgPool1d: _adaptive_pool(1, True),
    nn.AdaptiveAvgPool2d: _adaptive_pool(2, True),
}
