"""Every function of tandem.ops, and the functions of tandem.math that are written in them, on fixed
inputs: run as a script, on one framework's tensors.

    python tests/ops_cases.py FRAMEWORK FILE.npz
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
        for n in ("gelu", "silu", "log_softmax", "stop_gradient", "cast", "std")
    },
    **{n: lambda f, i, n=n: getattr(f, n)(i["x"], -1) for n in ("sum", "mean", "argmax")},
    **{n: lambda f, i, n=n: getattr(f, n)(i["positive"]) for n in ("log", "sqrt")},
    **{n: lambda f, i, n=n: getattr(f, n)(i["x"], i["y"]) for n in ("minimum", "maximum")},
    **{
        f"{n} axis": lambda f, i, n=n: getattr(f, n)(i["x"], axis=0)
        for n in ("sum", "mean", "argmax", "std")
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


def results(convert: Callable[[np.ndarray], Any]) -> dict[str, np.ndarray]:
    """What every function gives for the inputs, as NumPy."""
    inputs = {n: convert(x) for n, x in INPUTS.items()}
    f = ops.of(inputs["x"])
    return {n: np.asarray(call(f, inputs)) for n, call in (OPS | MATH).items()}


def main(framework: str, file: str) -> None:
    if framework == "torch":
        import torch

        convert: Any = torch.as_tensor
    else:
        import keras

        convert = keras.ops.convert_to_tensor
    np.savez(file, **results(convert))
    print(json.dumps(type(ops.of(convert(INPUTS["x"]))).__name__))


if __name__ == "__main__":
    main(*sys.argv[1:])
