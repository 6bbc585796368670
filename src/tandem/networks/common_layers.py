"""Layers in files that earlier commits wrote for custom networks. They only act, in NumPy, and are
no longer created: such networks now act through their framework.

Weights have Keras's names and layout. `trailing` is the number of axes after the channels' axis (0:
channels last; 2: an image with channels first).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tandem import ops
from tandem.networks.plan import Layer, Weights
from tandem.networks.recurrent import lstm
from tandem.types import Array

Shape = tuple[int, ...]
Pads = tuple[int, ...]  # padding on both sides of each axis: (before, after, before, after, ...)


@dataclass(frozen=True)
class Linear(Layer):
    """A linear layer without a bias: x @ kernel. kernel [inputs, units]."""

    inputs: int
    units: int

    def forward(self, w: Weights, x: Array) -> Array:
        return x @ w["kernel"]


@dataclass(frozen=True)
class Dropout(Layer):
    """Dropout and other training noise: the identity when acting."""

    def forward(self, w: Weights, x: Array) -> Array:
        return x


@dataclass(frozen=True)
class Reshape(Layer):
    """A layer that reshapes rows, and converts them to float32 if `cast`."""

    shape: Shape
    cast: bool = False

    def forward(self, w: Weights, x: Array) -> Array:
        x = x.reshape(len(x), *self.shape)
        return x.astype(np.float32) if self.cast else x


def _windows(x: Array, kernel: Shape, stride: Shape, pads: Pads, fill: float) -> Array:
    """Return the windows of x [B, ..., C], padded with `pads`: [B, ..., C, *kernel], one per
    position."""
    around = [(0, 0), *zip(pads[::2], pads[1::2], strict=True), (0, 0)]
    x = np.pad(x, around, constant_values=fill)
    found = np.lib.stride_tricks.sliding_window_view(x, kernel, axis=tuple(range(1, x.ndim - 1)))
    return found[(slice(None), *(slice(None, None, s) for s in stride))]


@dataclass(frozen=True)
class Windowed(Layer):
    """The base class of layers over windows of size `kernel` along some axes, `stride` apart, with
    padding `pads`."""

    kernel: Shape
    stride: Shape
    pads: Pads
    trailing: int = 0


@dataclass(frozen=True)
class Convolution(Windowed):
    """A convolution over one or two axes. kernel [*k, C, filters], bias [filters]."""

    channels: int = 0
    filters: int = 0
    bias: bool = True

    def forward(self, w: Weights, x: Array) -> Array:
        last = np.moveaxis(x, -1 - self.trailing, -1)
        found = _windows(last, self.kernel, self.stride, self.pads, 0.0)
        patches = np.moveaxis(found, len(self.kernel) + 1, -1)  # [B, ..., *k, C]
        rows = patches.reshape(*patches.shape[: len(self.kernel) + 1], -1)
        out = rows @ w["kernel"].reshape(-1, self.filters)
        return np.moveaxis(out + w["bias"] if self.bias else out, -1, -1 - self.trailing)


@dataclass(frozen=True)
class Pool(Windowed):
    """The maximum of each window, or the average: of the whole window, or of its unpadded part if
    `count_pads` is off."""

    average: bool = False
    count_pads: bool = True

    def forward(self, w: Weights, x: Array) -> Array:
        last = np.moveaxis(x, -1 - self.trailing, -1)
        axes = tuple(range(-len(self.kernel), 0))
        windows = self.kernel, self.stride, self.pads
        if not self.average:
            out = _windows(last, *windows, -np.inf).max(axes)
        elif self.count_pads or not any(self.pads):
            out = _windows(last, *windows, 0.0).mean(axes, dtype=np.float32)
        else:
            there = _windows(np.ones_like(last[:1]), *windows, 0.0).sum(axes)
            out = _windows(last, *windows, 0.0).sum(axes) / there
        return np.moveaxis(out, -1, -1 - self.trailing)


@dataclass(frozen=True)
class BatchNorm(Layer):
    """Batch normalization (Ioffe & Szegedy 2015, arXiv:1502.03167) in inference mode, with the
    moving mean and variance [width]. `scale` and `bias` tell which of the two were trained."""

    width: int
    epsilon: float
    trailing: int = 0
    scale: bool = True
    bias: bool = True

    def forward(self, w: Weights, x: Array) -> Array:
        factor = w.get("scale", np.float32(1)) / np.sqrt(w["moving_variance"] + self.epsilon)
        offset = w.get("bias", np.float32(0)) - w["moving_mean"] * factor
        shape = (self.width, *(1,) * self.trailing)
        return x * factor.astype(np.float32).reshape(shape) + offset.astype(np.float32).reshape(
            shape
        )


@dataclass(frozen=True)
class GroupNorm(Layer):
    """Group normalization (Wu & He 2018, arXiv:1803.08494): normalizes each of `groups` groups of
    channels by its mean and variance in a row. `before`: the number of axes before the channels."""

    width: int
    groups: int
    epsilon: float
    before: int = 0
    trailing: int = 0
    scale: bool = True
    bias: bool = True

    def forward(self, w: Weights, x: Array) -> Array:
        first = np.moveaxis(x, self.before + 1, 1)
        groups = first.reshape(len(x), self.groups, -1)
        centred = groups - groups.mean(-1, keepdims=True)
        spread = np.sqrt((centred * centred).mean(-1, keepdims=True) + np.float32(self.epsilon))
        out = np.moveaxis((centred / spread).reshape(first.shape), 1, self.before + 1)
        shape = (self.width, *(1,) * self.trailing)
        if self.scale:
            out = out * w["scale"].reshape(shape)
        return out + w["bias"].reshape(shape) if self.bias else out


@dataclass(frozen=True)
class Embedding(Layer):
    """A learned vector per integer. embeddings [choices, width]."""

    choices: int
    width: int

    def forward(self, w: Weights, x: Array) -> Array:
        return w["embeddings"][x if x.dtype.kind in "iu" else x.astype(np.int64)]


@dataclass(frozen=True)
class LSTM(Layer):
    """An LSTM from sequences [B, T, inputs] to the outputs after each step, [B, T, units], starting
    from a zero state (Hochreiter & Schmidhuber 1997, with the forget gate of Gers et al. 2000), as
    in `recurrent.LSTMCell`. kernel [inputs, 4 units], recurrent [units, 4 units] and bias [4 units]
    are concatenated in the order i, f, g, o."""

    inputs: int
    units: int
    bias: bool = True

    def forward(self, w: Weights, x: Array) -> Array:
        outer = x @ w["kernel"] + (w["bias"] if self.bias else np.float32(0))
        h = c = np.zeros((len(x), self.units), np.float32)
        states = []
        for t in range(x.shape[1]):
            h, c = lstm(outer[:, t] + h @ w["recurrent"], c, self.units)
            states.append(h)
        return np.stack(states, 1)


@dataclass(frozen=True)
class Steps(Layer):
    """The last step [B, F] of a sequence [B, T, F], or all of it."""

    last: bool

    def forward(self, w: Weights, x: Array) -> Array:
        return x[:, -1] if self.last else x


@dataclass(frozen=True)
class PReLU(Layer):
    """A leaky rectifier with learned slopes alpha (He et al. 2015, arXiv:1502.01852): a single one,
    or one per entry of the last axis, [width]."""

    width: int

    def forward(self, w: Weights, x: Array) -> Array:
        return np.where(x >= 0, x, w["alpha"] * x)


def _softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _softplus(x: Array, beta: float = 1.0) -> Array:
    return np.logaddexp(np.float32(0), beta * x) / beta


SELU = (1.6732632423543772, 1.0507009873554805)  # alpha, scale (Klambauer et al. 2017)
# named as in torch.nn.functional where possible
FUNCTIONS: dict[str, Callable[..., Array]] = {
    "leaky_relu": lambda x, slope: np.where(x >= 0, x, slope * x),
    "hardtanh": lambda x, low, high: np.clip(x, np.float32(low), np.float32(high)),
    "softsign": lambda x: x / (1 + np.abs(x)),
    "mish": lambda x: x * np.tanh(_softplus(x)),
    "softmax": _softmax,
    "log_softmax": lambda x: ops.of(x).log_softmax(x),
    "selu": lambda x: (
        SELU[1] * np.where(x > 0, x, SELU[0] * np.expm1(np.minimum(x, np.float32(0))))
    ),
    "elu": lambda x, alpha: np.where(x > 0, x, alpha * np.expm1(np.minimum(x, np.float32(0)))),
    "celu": lambda x, alpha: (
        np.maximum(x, np.float32(0)) + alpha * np.expm1(np.minimum(x, np.float32(0)) / alpha)
    ),
    "gelu_tanh": lambda x: (
        0.5 * x * (1 + np.tanh(np.float32((2 / np.pi) ** 0.5) * (x + 0.044715 * x * x * x)))
    ),
    "softplus": _softplus,
    "logsigmoid": lambda x: -_softplus(-x),
    "hardsigmoid": lambda x: np.clip(x + 3, np.float32(0), np.float32(6)) / 6,
    "hardswish": lambda x: x * np.clip(x + 3, np.float32(0), np.float32(6)) / 6,
    "tanhshrink": lambda x: x - np.tanh(x),
    "softshrink": lambda x, edge: np.sign(x) * np.maximum(np.abs(x) - edge, np.float32(0)),
    "hardshrink": lambda x, edge: np.where(np.abs(x) > edge, x, np.float32(0)),
    "threshold": lambda x, edge, below: np.where(x > edge, x, np.float32(below)),
    "exp": np.exp,
    "rescale": lambda x, scale, offset: x.astype(np.float32) * np.float32(scale) + offset,
}


@dataclass(frozen=True)
class Function(Layer):
    """A function of each number, or of each vector along the last axis (softmax), with fixed
    parameters; one of `FUNCTIONS`."""

    name: str
    parameters: tuple[float, ...] = ()

    def forward(self, w: Weights, x: Array) -> Array:
        return FUNCTIONS[self.name](x, *self.parameters)
