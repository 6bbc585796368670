"""Operations of JAX's traces as NumPy's, for `keras_jax_acting`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import jax.extend
import numpy as np

from tandem import ops
from tandem.types import AnyArray, Array

# Each makes, of an equation of JAX's, the function of NumPy's; None where there is none

Made = Callable[..., Any] | None


def copied(x: Any) -> AnyArray:
    """An array of its own."""
    return np.array(x, copy=True)


def _plain(function: Callable[..., Any], *known: str) -> Callable[[Any], Made]:
    """An operation without parameters, or with those `known` not to matter here."""

    def make(equation: Any) -> Made:
        given = {n for n, x in equation.params.items() if x is not None}
        return function if given <= set(known) else None

    return make


def _given(equation: Any, *names: str) -> list[Any] | None:
    """Its parameters of these names; None where it has others that are not None."""
    given = {n for n, x in equation.params.items() if x is not None}
    return [equation.params.get(n) for n in names] if given <= set(names) else None


def _dtype(equation: Any) -> Any:
    return equation.outvars[0].aval.dtype


def shape_of(equation: Any) -> tuple[int, ...]:
    """The shape of what an equation makes."""
    return tuple(equation.outvars[0].aval.shape)


def _product(equation: Any) -> Made:
    given = _given(equation, "dimension_numbers", "preferred_element_type", "precision")
    if given is None or any(x.aval.dtype != "float32" for x in equation.invars):
        return None
    (left, right), batch = given[0]
    if any(map(len, batch)) or (given[1] is not None and given[1] != np.float32):
        return None
    ranks = [len(x.aval.shape) for x in equation.invars]
    if ranks == [2, 2] and (tuple(left), tuple(right)) == ((1,), (0,)):
        return np.dot
    return partial(np.tensordot, axes=(tuple(left), tuple(right)))


def _broadcast(equation: Any) -> Made:
    given = _given(equation, "shape", "broadcast_dimensions")
    if given is None or len(equation.invars) != 1:
        return None
    shape, entering = shape_of(equation), equation.invars[0].aval.shape
    sides = [1] * len(shape)
    for i, n in zip(given[1], entering, strict=True):
        sides[i] = n
    if tuple(sides) == shape:
        return lambda x: x.reshape(shape)

    def broadcast(x: Array) -> AnyArray:
        out = np.empty(shape, x.dtype)
        out[...] = x.reshape(sides)
        return out

    return broadcast


def repeats(equation: Any) -> bool:
    """Whether a broadcast does no more than to repeat a value along new first axes."""
    shape, entering = shape_of(equation), tuple(equation.invars[0].aval.shape)
    new = len(shape) - len(entering)
    dimensions = tuple(equation.params["broadcast_dimensions"])
    return dimensions == tuple(range(new, len(shape))) and shape[new:] == entering


def _reshape(equation: Any) -> Made:
    given = _given(equation, "new_sizes")
    return None if given is None else lambda x: x.reshape(given[0])


def _squeeze(equation: Any) -> Made:
    given, shape = _given(equation, "dimensions"), shape_of(equation)
    return None if given is None else lambda x: x.reshape(shape)


def _transpose(equation: Any) -> Made:
    given = _given(equation, "permutation")
    return None if given is None else lambda x: x.transpose(given[0])


def _reversed(equation: Any) -> Made:
    given = _given(equation, "dimensions")
    return None if given is None else lambda x: np.flip(x, given[0])


def _slice(equation: Any) -> Made:
    given = _given(equation, "start_indices", "limit_indices", "strides")
    if given is None:
        return None
    strides = given[2] or (1,) * len(given[0])
    at = tuple(slice(*each) for each in zip(*given[:2], strides, strict=True))
    return lambda x: x[at]


def _concatenate(equation: Any) -> Made:
    given = _given(equation, "dimension")
    return None if given is None else lambda *xs: np.concatenate(xs, given[0])


def _converted(equation: Any) -> Made:
    given = _given(equation, "new_dtype", "weak_type")
    entering = equation.invars[0].aval.dtype
    # of numbers beyond an integer's range NumPy makes others than XLA
    if given is None or (entering.kind == "f" and given[0].kind in "iu"):
        return None
    return lambda x: x.astype(given[0])


def _selected(equation: Any) -> Made:
    fits = len(equation.invars) == 3 and equation.invars[0].aval.dtype == np.bool_
    return (lambda which, no, yes: np.where(which, yes, no)) if fits else None


def _reduced(function: Any) -> Callable[[Any], Made]:
    def make(equation: Any) -> Made:
        given, dtype = _given(equation, "axes"), _dtype(equation)
        if given is None or dtype == np.bool_ or not prod(equation.invars[0].aval.shape):
            return None
        axes = tuple(given[0])
        axis = axes[0] if len(axes) == 1 else axes
        reduce = function.reduce
        return lambda x: reduce(x, axis, dtype)

    return make


def _best(function: Any) -> Callable[[Any], Made]:
    def make(equation: Any) -> Made:
        given = _given(equation, "axes", "index_dtype")
        if given is None or len(given[0]) != 1:
            return None
        return lambda x: function(x, given[0][0]).astype(given[1])

    return make


def _power(equation: Any) -> Made:
    given, dtype = _given(equation, "y"), _dtype(equation)
    if given is None or dtype != np.float32:
        return None
    exponent = given[0]
    return lambda x: x**exponent


def _divided(equation: Any) -> Made:
    # of integers XLA's is another
    fits = _dtype(equation) == np.float32
    return np.divide if fits and _given(equation) is not None else None


def _bits(equation: Any) -> Made:
    given, entering = _given(equation, "new_dtype"), equation.invars[0].aval.dtype
    same = given is not None and given[0].itemsize == entering.itemsize
    return (lambda x: np.asarray(x).view(given[0])) if same and given is not None else None


def _shifted(equation: Any) -> Made:
    x, by = equation.invars
    # NumPy's is arithmetic of signed integers
    known = isinstance(by, jax.extend.core.Literal) and 0 <= int(by.val) < 32
    return np.right_shift if known and x.aval.dtype == np.int32 else None


_NUMPY = ops.of(np.zeros(1, np.float32))
OPERATIONS: dict[str, Callable[[Any], Made]] = {
    "dot_general": _product,
    "broadcast_in_dim": _broadcast,
    "reshape": _reshape,
    "squeeze": _squeeze,
    "transpose": _transpose,
    "slice": _slice,
    "rev": _reversed,
    "concatenate": _concatenate,
    "convert_element_type": _converted,
    "select_n": _selected,
    "reduce_sum": _reduced(np.add),
    "reduce_max": _reduced(np.maximum),
    "reduce_min": _reduced(np.minimum),
    "argmax": _best(np.argmax),
    "argmin": _best(np.argmin),
    "integer_pow": _power,
    "div": _divided,
    "add": _plain(np.add),
    "sub": _plain(np.subtract),
    "mul": _plain(np.multiply),
    "max": _plain(np.maximum),
    "min": _plain(np.minimum),
    "neg": _plain(np.negative),
    "abs": _plain(np.abs),
    "sign": _plain(np.sign),
    "square": _plain(np.square),
    "clamp": _plain(lambda low, x, high: np.minimum(np.maximum(x, low), high)),
    "exp": _plain(np.exp, "accuracy"),
    "expm1": _plain(np.expm1, "accuracy"),
    "log": _plain(np.log, "accuracy"),
    "log1p": _plain(np.log1p, "accuracy"),
    "tanh": _plain(np.tanh, "accuracy"),
    "sin": _plain(np.sin, "accuracy"),
    "cos": _plain(np.cos, "accuracy"),
    "sqrt": _plain(np.sqrt, "accuracy"),
    "rsqrt": _plain(lambda x: 1.0 / np.sqrt(x), "accuracy"),
    "logistic": _plain(_NUMPY.sigmoid, "accuracy"),
    "erf": _plain(ops.erf, "accuracy"),
    "erfc": _plain(lambda x: 1.0 - ops.erf(x), "accuracy"),
    "eq": _plain(np.equal),
    "ne": _plain(np.not_equal),
    "gt": _plain(np.greater),
    "ge": _plain(np.greater_equal),
    "lt": _plain(np.less),
    "le": _plain(np.less_equal),
    "bitcast_convert_type": _bits,
    "shift_right_arithmetic": _shifted,
    "and": _plain(np.bitwise_and),
    "or": _plain(np.bitwise_or),
    "not": _plain(np.invert),
    "stop_gradient": _plain(lambda x: x),
    "copy": _plain(lambda x: x),
}
