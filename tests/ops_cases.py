"""Every function of tandem.ops, and the functions of tandem.math that are written in them, on fixed
inputs: run as a script, on one framework's tensors.

    python tests/ops_cases.py ENGINE FILE.npz
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from tandem import ops
from tandem.math import distributions, policy_losses, values

_rng = np.random.default_rng(0)


def _normal(*shape: int, scale: float = 2.0) -> np.ndarray:
    return (scale * _rng.standard_normal(shape)).astype(np.float32)


INPUTS: dict[str, np.ndarray] = {
    "x": np.concatenate(
        [_normal(4, 6), np.array([[0.0, -0.0, 30.0, -30.0, 1.0, -1.0]], np.float32)]
    ),
    "y": _normal(5, 6),
    "positive": np.abs(_normal(5, 6)) + np.float32(0.1),
    "odd": np.array([1.0, np.nan, np.inf, -np.inf, 0.0], np.float32),
    "index": np.array([0, 5, 2, 2, 1], np.int64),
    "bytes": np.arange(30, dtype=np.uint8).reshape(5, 6),
    "row": _normal(5),
    "other": _normal(5),
    "weight": np.array([1, 0, 0.5, 1, 2], np.float32),
    "unit": _normal(5, 3, scale=0.5),
    "noise": _normal(5, 3, scale=1.0),
    "choices": np.stack([_rng.integers(n, size=5) for n in (2, 4)], -1),
}

Call = Callable[..., Any]  # of the functions for its arrays, and the inputs by name

OPS: dict[str, Call] = {
    **{
        n: lambda f, i, n=n: getattr(f, n)(i["x"])
        for n in ("exp", "tanh", "abs", "softplus", "sigmoid", "relu", "elu")
    },
    **{
        n: lambda f, i, n=n: getattr(f, n)(i["x"])
        for n in ("gelu", "silu", "log_softmax", "stop_gradient", "cast")
    },
    **{n: lambda f, i, n=n: getattr(f, n)(i["x"], -1) for n in ("sum", "mean", "argmax")},
    **{n: lambda f, i, n=n: getattr(f, n)(i["positive"]) for n in ("log", "sqrt")},
    **{n: lambda f, i, n=n: getattr(f, n)(i["x"], i["y"]) for n in ("minimum", "maximum")},
    **{
        f"{n} axis": lambda f, i, n=n: getattr(f, n)(i["x"], axis=0)
        for n in ("sum", "mean", "argmax")
    },
    **{f"{n} all": lambda f, i, n=n: getattr(f, n)(i["x"]) for n in ("sum", "mean")},
    "where": lambda f, i: f.where(i["x"] > i["y"], i["x"], i["y"]),
    "where number": lambda f, i: f.where(i["x"] > 0, i["x"], 0.0),
    "clip": lambda f, i: f.clip(i["x"], -1.0, 0.5),
    "clip arrays": lambda f, i: f.clip(i["x"], i["y"] - i["positive"], i["y"]),
    "concat": lambda f, i: f.concat([i["x"], i["y"]], -1),
    "stack": lambda f, i: f.stack([i["row"], i["other"]], -1),
    "reshape": lambda f, i: f.reshape(i["x"], (-1, 3)),
    "swapaxes": lambda f, i: f.swapaxes(i["x"], 0, 1),
    "scan": lambda f, i: f.scan(
        lambda h, rows: 0.5 * h + rows[0] * rows[1], i["row"][:3], (i["unit"], i["noise"])
    ),
    "take": lambda f, i: f.take(i["x"], i["index"]),
    "one_hot": lambda f, i: f.one_hot(i["index"], 6),
    "cast bytes": lambda f, i: f.cast(i["bytes"]),
    "isfinite": lambda f, i: f.isfinite(i["odd"]),
    "all": lambda f, i: f.all(f.isfinite(i["odd"])),
}

GAUSSIAN, SEVERAL = distributions.Gaussian(3), distributions.MultiCategorical((2, 4))
CHOICE = distributions.Categorical(6)

MATH: dict[str, Call] = {
    "q_learning": lambda f, i: values.q_learning(i["x"], i["index"], i["row"], i["other"], i["y"]),
    "q_learning double": lambda f, i: values.q_learning(
        i["x"], i["index"], i["row"], i["other"], i["y"], i["x"]
    ),
    "huber": lambda f, i: values.huber(i["row"]),
    "clipped_value_loss": lambda f, i: values.clipped_value_loss(
        i["row"], i["other"], i["weight"], 0.2
    ),
    "clipped_surrogate": lambda f, i: policy_losses.clipped_surrogate(
        f.exp(i["row"]), i["other"], 0.2
    ),
    "kl_estimate": lambda f, i: policy_losses.kl_estimate(i["row"]),
    "standardize": lambda f, i: policy_losses.standardize(i["row"], i["weight"]),
    "categorical log_prob": lambda f, i: CHOICE.log_prob(i["x"], i["index"]),
    "categorical entropy": lambda f, i: CHOICE.entropy(i["x"]),
    "multi-categorical log_prob": lambda f, i: SEVERAL.log_prob(i["x"], i["choices"]),
    "multi-categorical entropy": lambda f, i: SEVERAL.entropy(i["x"]),
    "multi-categorical mode": lambda f, i: SEVERAL.mode(i["x"]),
    "gaussian log_prob": lambda f, i: GAUSSIAN.log_prob(i["y"], i["unit"]),
    "gaussian entropy": lambda f, i: GAUSSIAN.entropy(i["y"]),
    "gaussian sample": lambda f, i: GAUSSIAN.sample(i["y"], i["noise"]),
    "tanh_normal action": lambda f, i: distributions.tanh_normal(
        i["unit"], i["y"][:, :3], i["noise"]
    )[0],
    "tanh_normal log_prob": lambda f, i: distributions.tanh_normal(
        i["unit"], i["y"][:, :3], i["noise"]
    )[1],
}


_AROUND = [-2.0, -1.0, 0.0, 1.0, 2.0]
_PAIRS = [[1.0, 1.0], [0.0, 1.0], [1.0, 0.0]]
_HALVES = [[0.5, 0.5], [0.0, 1.0], [1.0, 0.0]]

# Where a function has a kink: the function of x, x, and its gradient there by the rule of
# tandem.ops, worked out by hand.
KINKS: dict[str, tuple[Callable[[Any, Any], Any], list[Any], list[Any]]] = {
    "clip": (lambda f, x: f.clip(x, -1.0, 1.0), _AROUND, [0, 1, 1, 1, 0]),
    "clip arrays": (lambda f, x: f.clip(x, 0 * x - 1, 0 * x + 1), _AROUND, [0, 1, 1, 1, 0]),
    "clip from 0": (lambda f, x: f.clip(x, 0.0, float("inf")), _AROUND, [0, 0, 1, 1, 1]),
    "clip to a number": (lambda f, x: f.clip(x, 1.0, 1.0), [0.0, 1.0, 2.0], [0, 1, 0]),
    "minimum": (lambda f, x: f.minimum(x[:, 0], x[:, 1]), _PAIRS, [_HALVES[0], [1, 0], [0, 1]]),
    "maximum": (lambda f, x: f.maximum(x[:, 0], x[:, 1]), _PAIRS, _HALVES),
    "abs": (lambda f, x: f.abs(x), [-1.0, 0.0, -0.0, 1.0], [-1, 0, 0, 1]),
    "relu": (lambda f, x: f.relu(x), [-1.0, 0.0, 1.0], [0, 0, 1]),
    "elu": (lambda f, x: f.elu(x), [0.0, 1.0], [1, 1]),
    "where": (lambda f, x: f.where(x > 0, x, 0.0), [-1.0, 0.0, 1.0], [0, 0, 1]),
    "huber": (lambda f, x: values.huber(x), _AROUND, [-1, -1, 0, 1, 1]),
    "huber of 2": (lambda f, x: values.huber(x, 2.0), [-3.0, -2.0, 0.0, 2.0], [-2, -2, 0, 2]),
    # Of values that were 0, for targets of 1: within the clip both losses are the same function of
    # x; at 1.5 they are equal, and only one of them has a slope.
    "clipped_value_loss": (
        lambda f, x: values.clipped_value_loss(x, 0 * x, 0 * x + 1, 0.5),
        [-1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0],
        [-4, -3, -2, -1, 0, 0.5, 2],
    ),
    # Of ratios x, for advantages of 1: within the clip both terms are the same function of x.
    "clipped_surrogate": (
        lambda f, x: policy_losses.clipped_surrogate(x, 0 * x + 1, 0.5),
        [0.25, 0.5, 1.0, 1.5, 2.0],
        [1, 1, 1, 1, 0],
    ),
}


def results(convert: Callable[[np.ndarray], Any]) -> dict[str, np.ndarray]:
    """What every function gives for the inputs, as NumPy."""
    inputs = {n: convert(x) for n, x in INPUTS.items()}
    f = ops.of(inputs["x"])
    return {n: np.asarray(call(f, inputs)) for n, call in (OPS | MATH).items()}


def gradients(slope: Callable[..., Any], convert: Callable[[np.ndarray], Any]) -> dict[str, Any]:
    """The gradients at all kinks, as NumPy; slope: (function of x, x) -> gradient of its sum."""
    found = {}
    for name, (call, x, _) in KINKS.items():
        found[f"gradient of {name}"] = np.asarray(
            slope(lambda x, call=call: call(ops.of(x), x), convert(np.array(x, np.float32)))
        )
    return found


def _torch_slope(function: Callable[..., Any], x: Any) -> Any:
    x.requires_grad_()
    function(x).sum().backward()
    return x.grad


def _jax_slope(function: Callable[..., Any], x: Any) -> Any:
    import jax

    return jax.jit(jax.grad(lambda x: function(x).sum()))(x)


def _tensorflow_slope(function: Callable[..., Any], x: Any) -> Any:
    import tensorflow as tf

    @tf.function(autograph=False)
    def slope(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = tf.reduce_sum(function(x))
        return tape.gradient(total, x)

    return slope(x)


def main(engine: str, file: str) -> None:
    if engine == "torch":
        import torch

        convert: Any = torch.as_tensor
    else:
        import keras

        convert = keras.ops.convert_to_tensor
    slope = {"jax": _jax_slope, "tensorflow": _tensorflow_slope}.get(engine, _torch_slope)
    np.savez(file, **results(convert), **gradients(slope, convert))
    print(json.dumps(type(ops.of(convert(INPUTS["x"]))).__name__))


if __name__ == "__main__":
    main(*sys.argv[1:])
