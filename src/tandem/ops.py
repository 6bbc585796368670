"""The few array functions that losses and policies are written in. `of(x)` finds them by the type
of x: NumPy arrays, PyTorch tensors, or the tensors of the engine that Keras runs on (TensorFlow,
JAX). No framework is imported before one of its tensors exists. Reductions take `axis`; what is
listed here is all there is.

    exp log tanh sqrt abs where minimum maximum clip softplus sigmoid relu elu gelu silu
    concat stack reshape swapaxes sum mean std argmax log_softmax take one_hot cast stop_gradient
    isfinite all scan
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

Array = Any
_by_type: dict[type, Any] = {}


def of(x: Any) -> Any:
    """The functions for arrays of x's type; where x is a dict (an observation), of its first
    leaf's."""
    try:
        return _by_type[type(x)]
    except KeyError:
        pass
    if isinstance(x, dict):
        return of(next(iter(x.values())))
    if isinstance(x, (np.ndarray, np.generic)):
        found: Any = _Numpy()
    elif "torch" in sys.modules and isinstance(x, sys.modules["torch"].Tensor):
        found = _Torch()
    elif "keras" in sys.modules and sys.modules["keras"].ops.is_tensor(x):
        found = _Keras()
    else:
        raise TypeError(
            "expected a NumPy array, a PyTorch tensor or a tensor of Keras's engine, got "
            f"{type(x).__name__}"
        )
    return _by_type.setdefault(type(x), found)


Step = Callable[[Array, tuple[Array, ...]], Array]  # (state, the rows xs[t]) -> next state


def _steps(step: Step, state: Array, xs: tuple[Array, ...]) -> list[Array]:
    found = []
    for rows in zip(*xs, strict=True):
        state = step(state, rows)
        found.append(state)
    return found


class _Numpy:
    def __init__(self) -> None:
        self.exp, self.log, self.tanh, self.sqrt, self.abs, self.where = (
            np.exp,
            np.log,
            np.tanh,
            np.sqrt,
            np.abs,
            np.where,
        )
        self.minimum, self.maximum, self.clip, self.concat = (
            np.minimum,
            np.maximum,
            np.clip,
            np.concatenate,
        )
        self.stack, self.reshape, self.isfinite, self.all = (
            np.stack,
            np.reshape,
            np.isfinite,
            np.all,
        )
        self.swapaxes = np.swapaxes
        self.sum, self.mean, self.std, self.argmax = np.sum, np.mean, np.std, np.argmax

    def softplus(self, x: Array) -> Array:
        return np.logaddexp(np.float32(0), x)

    def sigmoid(self, x: Array) -> Array:
        return 0.5 * (1.0 + np.tanh(0.5 * x))  # never overflows

    def relu(self, x: Array) -> Array:
        return np.maximum(x, np.float32(0))

    def elu(self, x: Array) -> Array:
        return np.where(x > 0, x, np.expm1(np.minimum(x, 0)))

    def gelu(self, x: Array) -> Array:
        return 0.5 * x * (1.0 + _erf(x * np.float32(0.7071067811865476)))

    def silu(self, x: Array) -> Array:
        return x * self.sigmoid(x)

    def log_softmax(self, x: Array) -> Array:
        x = x - x.max(-1, keepdims=True)
        return x - np.log(np.exp(x).sum(-1, keepdims=True))

    def take(self, x: Array, i: Array) -> Array:
        return np.take_along_axis(x, i[..., None], -1)[..., 0]

    def one_hot(self, i: Array, n: int) -> Array:
        return (np.asarray(i)[..., None] == np.arange(n)).astype(np.float32)

    def cast(self, x: Array) -> Array:
        return x if x.dtype == np.float32 else x.astype(np.float32)

    def stop_gradient(self, x: Array) -> Array:
        return x

    def scan(self, step: Step, state: Array, xs: tuple[Array, ...]) -> Array:
        """`state = step(state, rows)` for the rows [...] of all xs [T, ...] in turn; all the
        states, [T, ...]."""
        return np.stack(_steps(step, state, xs))


def _erf(x: Array) -> Array:
    """The error function by Abramowitz & Stegun (1964), 7.1.26: absolute error below 1.5e-7, which
    is float32's own."""
    t = 1.0 / (1.0 + 0.3275911 * np.abs(x))
    poly = t * (
        0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429)))
    )
    return (np.sign(x) * (1.0 - poly * np.exp(-x * x))).astype(np.float32)


class _Torch:
    def __init__(self) -> None:
        import torch  # the caller holds one of its tensors: it is imported already

        self.exp, self.log, self.tanh, self.sqrt, self.abs = (
            torch.exp,
            torch.log,
            torch.tanh,
            torch.sqrt,
            torch.abs,
        )
        self.minimum, self.maximum, self.clip, self.concat = (
            torch.minimum,
            torch.maximum,
            torch.clamp,
            torch.cat,
        )
        self.where, self.stack, self.reshape, self.swapaxes = (
            torch.where,
            torch.stack,
            torch.reshape,
            torch.swapaxes,
        )
        self.sum, self.mean, self.argmax = torch.sum, torch.mean, torch.argmax
        self.isfinite, self.all, self.sigmoid, self.relu = (
            torch.isfinite,
            torch.all,
            torch.sigmoid,
            torch.relu,
        )
        f = torch.nn.functional
        self.softplus, self.elu, self.gelu, self.silu = f.softplus, f.elu, f.gelu, f.silu
        self._log_softmax, self._one_hot, self._float32 = (
            torch.log_softmax,
            f.one_hot,
            torch.float32,
        )

    def std(self, x: Array, axis: int | None = None) -> Array:
        return x.std(axis, correction=0)

    def log_softmax(self, x: Array) -> Array:
        return self._log_softmax(x, -1)

    def take(self, x: Array, i: Array) -> Array:
        return x.gather(-1, i[..., None].long())[..., 0]

    def one_hot(self, i: Array, n: int) -> Array:
        return self._one_hot(i.long(), n).to(self._float32)

    def cast(self, x: Array) -> Array:
        return x.to(self._float32)

    def stop_gradient(self, x: Array) -> Array:
        return x.detach()

    def scan(self, step: Step, state: Array, xs: tuple[Array, ...]) -> Array:
        return self.stack(_steps(step, state, xs))


class _Keras:
    def __init__(self) -> None:
        from keras import ops  # the caller holds one of its tensors: it is imported already

        self.exp, self.log, self.tanh, self.sqrt, self.abs = (
            ops.exp,
            ops.log,
            ops.tanh,
            ops.sqrt,
            ops.abs,
        )
        self.minimum, self.maximum, self.clip, self.concat = (
            ops.minimum,
            ops.maximum,
            ops.clip,
            ops.concatenate,
        )
        self.where, self.stack, self.reshape, self.isfinite, self.all = (
            ops.where,
            ops.stack,
            ops.reshape,
            ops.isfinite,
            ops.all,
        )
        self.sum, self.mean, self.std, self.argmax = ops.sum, ops.mean, ops.std, ops.argmax
        self.softplus, self.sigmoid, self.relu, self.elu, self.silu = (
            ops.softplus,
            ops.sigmoid,
            ops.relu,
            ops.elu,
            ops.silu,
        )
        self.log_softmax, self.stop_gradient, self._ops = ops.log_softmax, ops.stop_gradient, ops
        self.swapaxes = ops.swapaxes

    def gelu(self, x: Array) -> Array:
        return self._ops.gelu(x, approximate=False)

    def take(self, x: Array, i: Array) -> Array:
        return self._ops.take_along_axis(x, self._ops.expand_dims(i, -1), axis=-1)[..., 0]

    def one_hot(self, i: Array, n: int) -> Array:
        return self._ops.one_hot(i, n, dtype="float32")

    def cast(self, x: Array) -> Array:
        return self._ops.cast(x, "float32")

    def scan(self, step: Step, state: Array, xs: tuple[Array, ...]) -> Array:
        if "tensorflow" in type(state).__module__:
            return _tensorflow_scan(step, state, xs)

        def twice(state: Array, rows: tuple[Array, ...]) -> tuple[Array, Array]:
            state = step(state, rows)
            return state, state

        return self._ops.scan(twice, state, xs)[1]


def _tensorflow_scan(step: Step, state: Array, xs: tuple[Array, ...]) -> Array:
    """A loop that says how long it is at most, which its gradient needs within a compiled function;
    Keras's own does not."""
    tf, length = sys.modules["tensorflow"], xs[0].shape[0]
    count = tf.shape(xs[0])[0] if length is None else length
    states = tf.TensorArray(state.dtype, size=count, element_shape=state.shape)

    def body(t: Array, state: Array, states: Array) -> tuple[Array, Array, Array]:
        state = step(state, tuple(x[t] for x in xs))
        return t + 1, state, states.write(t, state)

    loop = tf.while_loop(
        lambda t, *_: t < count, body, (0, state, states), maximum_iterations=length
    )
    return loop[2].stack()
