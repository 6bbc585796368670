"""Users' networks of known layers, in the words of both frameworks: run as a script, Keras's are
recognised, and weights go from one framework to the other.

python tests/networks/layer_cases.py TORCH.npz FOUND.npz
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from tandem.networks import onnx
from tandem.networks.plan import Plan, Twin, Weights
from tandem.networks.serial import from_json, to_json
from tandem.spaces import Leaf


def box(*shape: int, dtype: str = "float32") -> Leaf:
    size = prod(shape)
    return Leaf("box", shape, dtype, (), (0.0,) * size, (9.0,) * size)


DIGIT = Leaf("discrete", (), "int64", (5,))
DIGITS = Leaf("multidiscrete", (3,), "int64", (5, 4, 3))


@dataclass(frozen=True)
class Case:
    """Layers of torch.nn on rows of `leaf`, and of keras.layers on rows of `keras_leaf`: where
    there are both, they are the same."""

    leaf: Leaf
    torch: Callable[[Any], list[Any]] | None = None
    keras: Callable[[Any], list[Any]] | None = None
    keras_leaf: Leaf | None = None  # with the channels last

    def shown(self, x: Any) -> Any:
        """What Keras's network is shown of x."""
        return np.moveaxis(x, 1, -1) if self.keras_leaf else x


def _last(nn: Any) -> Any:
    from tandem.networks.torch_sequences import LastStep

    return LastStep()


def _every(nn: Any) -> Any:
    from tandem.networks.torch_sequences import EveryStep

    return EveryStep()


def frozen(layer: Any) -> Any:
    """A layer whose weights no gradient changes."""
    if hasattr(layer, "trainable"):  # Keras's, which on torch are modules too
        layer.trainable = False
        return layer
    return layer.requires_grad_(False)


def nested(*layers: Any) -> Any:
    """A chain within a chain."""
    if hasattr(layers[0], "parameters") and not hasattr(layers[0], "trainable_variables"):
        from torch import nn

        return nn.Sequential(*layers)
    import keras

    return keras.Sequential(list(layers))


EPSILON = {"epsilon": 1e-5}
CASES: dict[str, Case] = {
    "batch norm": Case(
        box(4),
        lambda nn: [
            nn.Linear(4, 8, bias=False),
            nn.BatchNorm1d(8),
            nn.Tanh(),
            nn.Linear(8, 3),
        ],
        lambda k: [
            k.Dense(8, use_bias=False),
            k.BatchNormalization(**EPSILON),
            k.Activation("tanh"),
            k.Dense(3),
        ],
    ),
    "batch norm that learns nothing": Case(
        box(4),
        lambda nn: [nn.BatchNorm1d(4, affine=False), nn.Linear(4, 3)],
        lambda k: [k.BatchNormalization(center=False, scale=False, **EPSILON), k.Dense(3)],
    ),
    "batch norm with a bias alone": Case(
        box(4), None, lambda k: [k.Dense(5), k.BatchNormalization(scale=False), k.Dense(3)]
    ),
    "group norm": Case(
        box(4),
        lambda nn: [nn.Linear(4, 8), nn.GroupNorm(2, 8), nn.Linear(8, 3)],
        lambda k: [k.Dense(8), k.GroupNormalization(2, **EPSILON), k.Dense(3)],
    ),
    "dropout": Case(
        box(4),
        lambda nn: [nn.Linear(4, 8), nn.Dropout(0.2), nn.ReLU(), nn.AlphaDropout(0.1)],
        lambda k: [k.Dense(8), k.Dropout(0.2), k.ReLU(), k.AlphaDropout(0.1)],
    ),
    "noise": Case(
        box(4), None, lambda k: [k.GaussianNoise(1.0), k.Dense(3), k.GaussianDropout(0.2)]
    ),
    "chains, and a frozen part": Case(
        box(4),
        lambda nn: [
            nested(nn.Linear(4, 8), nested(nn.Tanh(), frozen(nn.Linear(8, 6)))),
            nested(nn.LeakyReLU(0.1), nn.Linear(6, 3)),
        ],
        lambda k: [
            nested(k.Dense(8), nested(k.Activation("tanh"), frozen(k.Dense(6)))),
            nested(k.LeakyReLU(0.1), k.Dense(3)),
        ],
    ),
    "pictures": Case(
        box(2, 8, 6),
        lambda nn: [
            nn.Conv2d(2, 4, 3, padding=1),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(4, 6, (2, 1), (2, 1), bias=False),
            nn.GroupNorm(3, 6),
            nn.Dropout2d(0.1),
            nn.AvgPool2d(2, 1),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(6, 3),
        ],
        lambda k: [
            k.Conv2D(4, 3, padding="same"),
            k.BatchNormalization(**EPSILON),
            k.ReLU(),
            k.MaxPooling2D(2),
            k.Conv2D(6, (2, 1), (2, 1), use_bias=False),
            k.GroupNormalization(3, **EPSILON),
            k.SpatialDropout2D(0.1),
            k.AveragePooling2D(2, 1),
            k.GlobalAveragePooling2D(keepdims=True),
            k.Flatten(),
            k.Dense(3),
        ],
        box(8, 6, 2),
    ),
    "padded pictures, flat": Case(
        box(2, 7, 5),
        lambda nn: [
            nn.Conv2d(2, 4, (3, 2), 2, padding=(1, 0)),
            nn.MaxPool2d(2, padding=1),
            nn.AvgPool2d(2, 1, padding=1),
            nn.AvgPool2d(2, 2, padding=1, count_include_pad=False),
            nn.AdaptiveMaxPool2d((1, None)),
            nn.Flatten(),
            nn.LazyLinear(3),
        ],
        None,
    ),
    "same pictures, flat": Case(
        box(7, 5, 2),
        None,
        lambda k: [
            k.Conv2D(4, (3, 2), 2, padding="same", activation="leaky_relu"),
            k.MaxPooling2D(2, padding="same"),
            k.AveragePooling2D((3, 1), 1, padding="same"),
            k.LayerNormalization(),
            k.Flatten(),
            k.Dense(3),
        ],
    ),
    "an uneven average": Case(
        box(9, 2), None, lambda k: [k.AveragePooling1D(2, padding="same"), k.Flatten(), k.Dense(3)]
    ),
    "bytes": Case(
        box(7, 5, 2, dtype="uint8"),
        None,
        lambda k: [k.Rescaling(1 / 9, -0.5), k.Conv2D(3, 3), k.GlobalMaxPooling2D(), k.Dense(2)],
    ),
    "sequences, convolved": Case(
        box(2, 9),
        lambda nn: [
            nn.Conv1d(2, 4, 3),
            nn.BatchNorm1d(4),
            nn.AvgPool1d(2, 1),
            nn.Dropout1d(0.1),
            nn.MaxPool1d(2),
            nn.AdaptiveMaxPool1d(1),
            nn.Flatten(),
        ],
        lambda k: [
            k.Conv1D(4, 3),
            k.BatchNormalization(**EPSILON),
            k.AveragePooling1D(2, 1),
            k.SpatialDropout1D(0.1),
            k.MaxPooling1D(2),
            k.GlobalMaxPooling1D(keepdims=True),
            k.Flatten(),
        ],
        box(9, 2),
    ),
    "causal": Case(
        box(9, 2),
        None,
        lambda k: [
            k.Conv1D(4, 3, padding="causal"),
            k.Conv1D(4, 2, 2, padding="same"),
            k.GlobalAveragePooling1D(),
        ],
    ),
    "embedding": Case(
        DIGIT,
        lambda nn: [nn.Embedding(5, 6), nn.Linear(6, 3)],
        lambda k: [k.Embedding(5, 6), k.Dense(3)],
    ),
    "embedding of an axis more": Case(
        DIGIT, None, lambda k: [k.Input((1,)), k.Embedding(5, 6), k.Flatten(), k.Dense(3)]
    ),
    "embeddings": Case(
        DIGITS,
        lambda nn: [nn.Embedding(5, 4), nn.Linear(4, 3), nn.Flatten()],
        lambda k: [k.Embedding(5, 4), k.Dense(3), k.Flatten()],
    ),
    "whole numbers": Case(DIGITS, None, lambda k: [k.Input((3,)), k.Dense(4)]),
    "lstm": Case(
        box(6, 3),
        lambda nn: [nn.LSTM(3, 5, batch_first=True), _last(nn), nn.Linear(5, 3)],
        lambda k: [k.LSTM(5), k.Dense(3)],
    ),
    "lstm of every step": Case(
        box(6, 3),
        lambda nn: [
            nn.LSTM(3, 5, batch_first=True),
            _every(nn),
            nn.LSTM(5, 4, bias=False, batch_first=True),
            _every(nn),
            nn.Flatten(),
        ],
        lambda k: [
            k.LSTM(5, return_sequences=True, dropout=0.1),
            k.LSTM(4, use_bias=False, return_sequences=True, recurrent_dropout=0.1),
            k.Flatten(),
        ],
    ),
    "another shape": Case(
        box(12),
        lambda nn: [nn.Unflatten(1, (4, -1)), nn.Linear(3, 2), nn.Flatten()],
        lambda k: [k.Reshape((4, -1)), k.Dense(2), k.Flatten()],
    ),
}


def _alone(name: str, torch: Callable[[Any], Any] | None, keras: Any) -> None:
    """A case of an activation behind a linear layer."""
    CASES[name] = Case(
        box(4),
        None if torch is None else lambda nn: [nn.Linear(4, 30), torch(nn)],
        None if keras is None else lambda k: [k.Dense(30), keras(k)],
    )


def _of(name: str) -> Callable[[Any], Any]:
    return lambda k: k.Activation(name)


for made in (
    ("leaky relu", lambda nn: nn.LeakyReLU(0.3), lambda k: k.LeakyReLU(0.3)),
    ("slopes drawn in training", lambda nn: nn.RReLU(0.1, 0.5), None),
    ("leaky relu by name", None, _of("leaky_relu")),
    ("a relu that leaks", None, lambda k: k.ReLU(negative_slope=0.1)),
    ("relu6", lambda nn: nn.ReLU6(), _of("relu6")),
    ("a capped relu", lambda nn: nn.Hardtanh(0, 0.4), lambda k: k.ReLU(max_value=0.4)),
    ("hardtanh", lambda nn: nn.Hardtanh(), _of("hard_tanh")),
    ("softsign", lambda nn: nn.Softsign(), _of("softsign")),
    ("mish", lambda nn: nn.Mish(), _of("mish")),
    ("selu", lambda nn: nn.SELU(), _of("selu")),
    ("elu", lambda nn: nn.ELU(0.5), lambda k: k.ELU(0.5)),
    ("celu", lambda nn: nn.CELU(), _of("celu")),
    ("another celu", lambda nn: nn.CELU(0.5), None),
    ("softmax", lambda nn: nn.Softmax(-1), lambda k: k.Softmax()),
    ("softmax by name", lambda nn: nn.Softmax(1), _of("softmax")),
    ("log softmax", lambda nn: nn.LogSoftmax(-1), _of("log_softmax")),
    ("log sigmoid", lambda nn: nn.LogSigmoid(), _of("log_sigmoid")),
    ("hard sigmoid", lambda nn: nn.Hardsigmoid(), _of("hard_sigmoid")),
    ("hard swish", lambda nn: nn.Hardswish(), _of("hard_silu")),
    ("tanhshrink", lambda nn: nn.Tanhshrink(), _of("tanh_shrink")),
    ("softshrink", lambda nn: nn.Softshrink(), _of("soft_shrink")),
    ("hardshrink", lambda nn: nn.Hardshrink(), _of("hard_shrink")),
    ("another shrink", lambda nn: nn.Hardshrink(0.1), None),
    ("threshold", lambda nn: nn.Threshold(0.2, 0.1), None),
    ("exponential", None, _of("exponential")),
    ("another softplus", lambda nn: nn.Softplus(2.0), None),
    ("another gelu", lambda nn: nn.GELU("tanh"), None),
    ("prelu", lambda nn: nn.PReLU(30), lambda k: k.PReLU()),
    ("prelu of one slope", lambda nn: nn.PReLU(), None),
    ("nothing", lambda nn: nn.Identity(), lambda k: k.Identity()),
):
    _alone(*made)


def observations(leaf: Leaf) -> Any:
    rng = np.random.default_rng(7)
    if leaf.sizes:
        return rng.integers(leaf.sizes if leaf.shape else leaf.sizes[0], size=(6, *leaf.shape))
    if leaf.dtype == "uint8":
        return rng.integers(0, 9, (6, *leaf.shape)).astype(np.uint8)
    return rng.normal(0.5, 2.0, (6, *leaf.shape)).astype(np.float32)


def worst(plan: Plan, weights: Weights, leaf: Leaf, x: Any, expected: Any) -> float:
    """How far a plan's twin is off, and the graph of ONNX, where there is onnxruntime."""
    assert from_json(json.loads(json.dumps(to_json(plan)))) == plan
    out = Twin(plan, weights)(x)
    assert out.dtype == np.float32 and out.shape == expected.shape, (out.dtype, out.shape)
    found = [out]
    try:
        graph = onnx.Graph()
        raw = graph.plan(plan, weights, "obs")
        model = graph.model(leaf, {"output": (raw, np.float32, list(out.shape[1:]))})
        found += [ran["output"] for ran in [onnx.run(model, {"obs": x})] if ran is not None]
    except onnx.EngineError:
        pass
    size = max(1.0, float(np.abs(expected).max()))
    return max(float(np.abs(x - expected).max()) / size for x in found)


def main(given: str, file: str) -> None:
    import keras

    from tandem.networks import keras_known
    from tandem.networks import keras_layers as models

    stored, rng = np.load(given), np.random.default_rng(1)
    found: dict[str, Any] = {}
    for name, case in CASES.items():
        if case.keras is None:
            continue
        leaf = case.keras_leaf or case.leaf
        x = case.shown(observations(case.leaf))
        shown = keras.ops.convert_to_tensor(x)
        model = keras.Sequential(case.keras(keras.layers))
        model(shown, training=True)
        for v in model.variables:
            if "float" in v.dtype:
                v.assign(keras.ops.convert_to_numpy(v.value) + 0.1 * rng.random(v.shape))
        known = keras_known.recognise(model, leaf)
        if known is None:
            print(json.dumps([name, None]))
            continue
        plan, variables = known
        weights = models.read(variables)
        out = keras.ops.convert_to_numpy(model(shown, training=False))
        print(json.dumps([name, worst(plan, weights, leaf, x, out)]))
        found |= {f"{name}: {n}": w for n, w in weights.items()}
        found[f"{name}: output"] = out
        theirs = {n.split(": ")[1]: stored[n] for n in stored.files if n.startswith(f"{name}: ")}
        if theirs:
            assert {n: w.shape for n, w in theirs.items()} == {
                n: w.shape for n, w in weights.items()
            }, (name, {n: w.shape for n, w in theirs.items()})
            models.write(variables, theirs)
            found[f"{name}: of torch"] = keras.ops.convert_to_numpy(model(shown, training=False))
    np.savez(file, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
