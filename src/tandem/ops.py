"""Array functions for losses and policies. `of(x)` selects them by the type of x: NumPy arrays,
PyTorch tensors, or tensors of the Keras backend (TensorFlow, JAX). No framework is imported before
one of its tensors exists. Reductions take `axis`. This is the complete list:

    exp log cos tanh sqrt abs where minimum maximum clip softplus sigmoid relu elu gelu silu
    concat stack reshape swapaxes sum mean argmax log_softmax take one_hot cast stop_gradient
    isfinite all sort smallest scan constant

Gradients are the same on every backend, even at kinks: the gradient of `clip` is 1 at its bounds,
equal arguments of `minimum` and `maximum` share it equally, and those of `abs` and `relu` are 0 at
0.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from tandem.types import Array, Tree

_by_type: dict[type, _Library] = {}


def of(x: Tree) -> Any:
    """Return the array functions for x's type, or for that of the first leaf if x is a dict (an
    observation)."""
    try:
        return _by_type[type(x)]
    except KeyError:
        pass
    if isinstance(x, dict):
        return of(next(iter(x.values())))
    if isinstance(x, (np.ndarray, np.generic)):
        functions: _Library = _Numpy(np)
    elif "torch" in sys.modules and isinstance(x, sys.modules["torch"].Tensor):
        functions = _Torch(sys.modules["torch"])
    elif "keras" in sys.modules and sys.modules["keras"].ops.is_tensor(x):
        keras = sys.modules["keras"]
        functions = _KERAS[keras.backend.backend()](keras.ops)
    else:
        raise TypeError(
            "expected a NumPy array, a PyTorch tensor or a tensor of the Keras backend, got "
            f"{type(x).__name__}"
        )
    return _by_type.setdefault(type(x), functions)


Step = Callable[[Array, tuple[Array, ...]], Array]  # (state, the rows xs[t]) -> next state


def _steps(step: Step, state: Array, xs: tuple[Array, ...]) -> list[Array]:
    states = []
    for rows in zip(*xs, strict=True):
        state = step(state, rows)
        states.append(state)
    return states


class _Library:
    """Functions with the same name in NumPy, PyTorch and Keras."""

    NAMES = """exp log cos tanh sqrt abs where minimum maximum clip stack reshape swapaxes sum
    mean argmax isfinite all"""

    def __init__(self, library: ModuleType) -> None:
        for name in self.NAMES.split():
            if not hasattr(self, name):  # a subclass may define its own
                setattr(self, name, getattr(library, name))


class _Numpy(_Library):
    concat = staticmethod(np.concatenate)

    def softplus(self, x: Array) -> Array:
        return np.logaddexp(np.float32(0), x)

    def sigmoid(self, x: Array) -> Array:
        return 0.5 * (1.0 + np.tanh(0.5 * x))  # never overflows

    def relu(self, x: Array) -> Array:
        return np.maximum(x, np.float32(0))

    def elu(self, x: Array) -> Array:
        return np.where(x > 0, x, np.expm1(np.minimum(x, 0)))

    def gelu(self, x: Array) -> Array:
        return 0.5 * x * (1.0 + erf(x * np.float32(0.7071067811865476)))

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

    def sort(self, x: Array) -> Array:
        """Sort along the last axis in ascending order."""
        return np.sort(x, -1)

    def smallest(self, x: Array, k: int) -> Array:
        """Return the k smallest values along the last axis in ascending order. Faster than `sort`,
        which is slow in XLA."""
        return np.sort(x, -1)[..., :k]

    def integer(self, x: Array) -> Array:
        """Convert to integers for use as indices."""
        return x.astype(np.int64)

    def constant(self, values: Array, like: Array) -> Array:
        """Convert NumPy values to an array of the type and device of `like`."""
        return values

    def stop_gradient(self, x: Array) -> Array:
        return x

    def scan(self, step: Step, state: Array, xs: tuple[Array, ...]) -> Array:
        """Compute `state = step(state, rows)` for the rows [...] of all xs [T, ...] in turn. Return
        all states, [T, ...]."""
        return np.stack(_steps(step, state, xs))


def erf(x: Array) -> Array:
    """Return the error function of a NumPy array, by Abramowitz & Stegun (1964), 7.1.26. The
    absolute error is below 1.5e-7, the precision of float32."""
    t = 1.0 / (1.0 + 0.3275911 * np.abs(x))
    poly = t * (
        0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429)))
    )
    return (np.sign(x) * (1.0 - poly * np.exp(-x * x))).astype(np.float32)


class _Torch(_Library):
    def __init__(self, torch: ModuleType) -> None:
        super().__init__(torch)
        f = torch.nn.functional
        self.concat, self.sigmoid, self.relu = torch.cat, torch.sigmoid, torch.relu
        self.softplus, self.elu, self.gelu, self.silu = f.softplus, f.elu, f.gelu, f.silu
        self._torch, self._one_hot = torch, f.one_hot

    def clip(self, x: Array, low: Array, high: Array) -> Array:
        # a setting is a scalar in host memory, which only torch's arithmetic combines with GPU
        # arrays
        low, high = (
            b.to(x.device) if isinstance(b, self._torch.Tensor) else b for b in (low, high)
        )
        return self._torch.clip(x, low, high)

    def log_softmax(self, x: Array) -> Array:
        return self._torch.log_softmax(x, -1)

    def take(self, x: Array, i: Array) -> Array:
        return x.gather(-1, i[..., None].long())[..., 0]

    def one_hot(self, i: Array, n: int) -> Array:
        return self._one_hot(i.long(), n).to(self._torch.float32)

    def cast(self, x: Array) -> Array:
        return x.to(self._torch.float32)

    def sort(self, x: Array) -> Array:
        return x.sort(-1).values

    def smallest(self, x: Array, k: int) -> Array:
        return x.topk(k, -1, largest=False).values

    def integer(self, x: Array) -> Array:
        return x.long()

    def constant(self, values: Array, like: Array) -> Array:
        return self._torch.as_tensor(values, device="cpu").to(like.device, non_blocking=True)

    def stop_gradient(self, x: Array) -> Array:
        return x.detach()

    def scan(self, step: Step, state: Array, xs: tuple[Array, ...]) -> Array:
        return self._torch.stack(_steps(step, state, xs))


class _Keras(_Library):
    def __init__(self, ops: ModuleType) -> None:
        super().__init__(ops)
        self.concat, self.softplus, self.sigmoid = ops.concatenate, ops.softplus, ops.sigmoid
        self.relu, self.elu, self.silu = ops.relu, ops.elu, ops.silu
        self.log_softmax, self.stop_gradient, self._ops = ops.log_softmax, ops.stop_gradient, ops

    def gelu(self, x: Array) -> Array:
        return self._ops.gelu(x, approximate=False)

    def take(self, x: Array, i: Array) -> Array:
        return self._ops.take_along_axis(x, self._ops.expand_dims(i, -1), axis=-1)[..., 0]

    def one_hot(self, i: Array, n: int) -> Array:
        return self._ops.one_hot(i, n, dtype="float32")

    def cast(self, x: Array) -> Array:
        return self._ops.cast(x, "float32")

    def sort(self, x: Array) -> Array:
        return self._ops.sort(x, axis=-1)

    def smallest(self, x: Array, k: int) -> Array:
        return -self._ops.top_k(-x, k)[0]

    def integer(self, x: Array) -> Array:
        return self._ops.cast(x, "int32")

    def constant(self, values: Array, like: Array) -> Array:
        return self._ops.convert_to_tensor(values)


class _KerasJax(_Keras):
    """Overrides of functions whose gradients differ in JAX: `clip` has half the gradient at its
    bounds, and `abs` has gradient 1 at 0."""

    def abs(self, x: Array) -> Array:
        return x * self._ops.sign(x)

    def clip(self, x: Array, low: Array, high: Array) -> Array:
        where = self._ops.where
        return where(x < low, low, where(x > high, high, x))

    def scan(self, step: Step, state: Array, xs: tuple[Array, ...]) -> Array:
        def twice(state: Array, rows: tuple[Array, ...]) -> tuple[Array, Array]:
            state = step(state, rows)
            return state, state

        return self._ops.scan(twice, state, xs)[1]


class _KerasTensorFlow(_Keras):
    """Overrides of `minimum` and `maximum`: TensorFlow gives the whole gradient to the first of
    equal arguments."""

    def minimum(self, x: Array, y: Array) -> Array:
        return 0.5 * self._ops.minimum(x, y) + 0.5 * self._ops.minimum(y, x)

    def maximum(self, x: Array, y: Array) -> Array:
        return 0.5 * self._ops.maximum(x, y) + 0.5 * self._ops.maximum(y, x)

    def scan(self, step: Step, state: Array, xs: tuple[Array, ...]) -> Array:
        """Loop with a maximum number of iterations, which the gradient in a compiled function
        requires; Keras's own `scan` sets none."""
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


_KERAS = {"jax": _KerasJax, "tensorflow": _KerasTensorFlow}
