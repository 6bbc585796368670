"""Users' own networks: those that a plan can express get a twin that puts out the same, the others
are honestly left alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from tandem.networks import torch_bodies
from tandem.networks import torch_layers as modules
from tandem.networks.plan import Twin
from tests.helpers import run_python

RNG = np.random.default_rng(0)


class Reversed(nn.Sequential):
    def forward(self, x):
        for part in reversed(self):
            x = part(x)
        return x


def hooked() -> nn.Module:
    module = nn.Sequential(nn.Linear(4, 2))
    module[0].register_forward_hook(lambda m, i, out: 2 * out)
    return module


KNOWN = {
    "chain": lambda: nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3), nn.Identity()),
    "one layer": lambda: nn.Linear(4, 2),
    "layer norm": lambda: nn.Sequential(
        nn.LayerNorm(4, eps=1e-3), nn.Linear(4, 8), nn.LayerNorm(8), nn.ELU(), nn.Linear(8, 2)
    ),
    "activations": lambda: nn.Sequential(
        nn.Linear(4, 8), nn.ReLU(True), nn.GELU(), nn.SiLU(), nn.Softplus(), nn.Sigmoid()
    ),
}
UNKNOWN = {
    "dropout": lambda: nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1)),
    "batch norm": lambda: nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8)),
    "no bias": lambda: nn.Sequential(nn.Linear(4, 8, bias=False)),
    "double precision": lambda: nn.Sequential(nn.Linear(4, 8).double()),
    "another elu": lambda: nn.Sequential(nn.Linear(4, 8), nn.ELU(alpha=0.5)),
    "another softplus": lambda: nn.Sequential(nn.Linear(4, 8), nn.Softplus(beta=2.0)),
    "another gelu": lambda: nn.Sequential(nn.Linear(4, 8), nn.GELU(approximate="tanh")),
    "layer norm without weights": lambda: nn.Sequential(
        nn.Linear(4, 8), nn.LayerNorm(8, elementwise_affine=False)
    ),
    "a chain inside": lambda: nn.Sequential(
        nn.Sequential(nn.Linear(4, 8), nn.Tanh()), nn.Linear(8, 2)
    ),
    "a subclass": lambda: Reversed(nn.Linear(4, 4), nn.Tanh()),
    "a hook": hooked,
    "nothing learned": lambda: nn.Sequential(nn.Tanh()),
    "spectral norm": lambda: nn.Sequential(
        nn.utils.parametrizations.spectral_norm(nn.Linear(4, 2))
    ),
}


@pytest.mark.parametrize("name", KNOWN)
def test_a_known_torch_module_has_a_twin(name) -> None:
    module, x = KNOWN[name](), RNG.normal(size=(6, 4)).astype(np.float32)
    plan = torch_bodies.recognise(module, 4)
    assert plan is not None
    chain = nn.Sequential(*torch_bodies.chain(module))
    with torch.no_grad():
        for w in module.parameters():
            w += 0.1 * torch.randn(w.shape, generator=torch.Generator().manual_seed(0))
        expected = module(torch.as_tensor(x)).numpy()
    np.testing.assert_allclose(
        Twin(plan, modules.read(plan, chain))(x), expected, rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("name", UNKNOWN)
def test_any_other_torch_module_is_left_alone(name) -> None:
    assert torch_bodies.recognise(UNKNOWN[name](), 4) is None


KERAS = """
    import json
    import keras, numpy as np
    from keras import layers
    from tandem.networks import keras_layers as models
    from tandem.networks.keras_bodies import recognise
    from tandem.networks.plan import Twin


    def double(x):
        return 2 * x


    double.__name__ = "tanh"

    known = {
        "chain": [
            layers.Dense(8, activation="tanh"),
            layers.ReLU(),
            layers.Dense(3, activation="gelu"),
        ],
        "with its input": [keras.Input((4,)), layers.Dense(8), layers.Activation("elu")],
        "layer norm": [
            layers.LayerNormalization(epsilon=1e-3),
            layers.Dense(8),
            layers.LayerNormalization(),
            layers.Dense(2),
        ],
        "activations": [
            layers.Dense(8, activation="silu"),
            layers.Activation("gelu"),
            layers.Dense(5, activation="softplus"),
        ],
    }
    unknown = {
        "dropout": [layers.Dense(8), layers.Dropout(0.1)],
        "batch norm": [layers.Dense(8), layers.BatchNormalization()],
        "no bias": [layers.Dense(8, use_bias=False)],
        "double precision": [layers.Dense(8, dtype="float64")],
        "half precision": [layers.Dense(8, dtype="mixed_bfloat16")],
        "a capped relu": [layers.Dense(8), layers.ReLU(max_value=6)],
        "a leaky relu": [layers.Dense(8), layers.ReLU(negative_slope=0.1)],
        "a shifted relu": [layers.Dense(8), layers.ReLU(threshold=1.0)],
        "another function of that name": [layers.Dense(8, activation=double)],
        "layer norm without a bias": [layers.Dense(8), layers.LayerNormalization(center=False)],
        "nothing learned": [layers.Activation("tanh")],
    }
    rng = np.random.default_rng(0)
    x = rng.normal(size=(6, 4)).astype(np.float32)


    def functional(chain):
        first = y = keras.Input((4,))
        for layer in chain:
            y = layer(y)
        return keras.Model(first, y)


    models_known = {name: keras.Sequential(chain) for name, chain in known.items()}
    models_known["functional"] = functional(
        [layers.Dense(8, activation="relu"), layers.Activation("tanh"), layers.Dense(3)]
    )
    for name, model in models_known.items():
        model(x)
        for v in model.trainable_variables:
            v.assign(np.asarray(v.value) + 0.1 * rng.normal(size=v.shape).astype(np.float32))
        found = recognise(model, 4)
        off = (
            float(np.abs(Twin(found[0], models.read(found[1]))(x) - np.asarray(model(x))).max())
            if found
            else None
        )
        print(json.dumps([name, "known", off]))
    for name, chain in unknown.items():
        model = keras.Sequential(chain)
        model(x)
        print(json.dumps([name, "unknown", recognise(model, 4) is None]))
    x, twice = keras.Input((4,)), layers.Dense(4)
    for name, y in (
        ("around", x + twice(x)),
        ("twice", twice(twice(x))),
        ("dropped", layers.Dropout(0.1)(twice(x))),
    ):
        print(
            json.dumps([f"functional, {name}", "unknown", recognise(keras.Model(x, y), 4) is None])
        )
"""


def test_keras_models_are_known_or_left_alone() -> None:
    for name, kind, found in run_python(KERAS, engine="jax"):
        if kind == "known":
            assert found is not None and found < 2e-6, name
        else:
            assert found is True, name
