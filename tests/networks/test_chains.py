"""Custom networks: chains of a plan's layers need no framework to act, all others do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import tandem
from tandem.networks import torch_bodies
from tandem.networks import torch_layers as modules
from tandem.networks.plan import Twin
from tests.helpers import run_python
from tests.networks import chains
from tests.networks.chains import LEARN, Lights


class Reversed(nn.Sequential):
    def forward(self, x):
        for part in reversed(self):
            x = part(x)
        return x


def hooked(module: nn.Module) -> nn.Module:
    module.register_forward_hook(lambda m, i, out: 2 * out)
    return module


def replaced() -> nn.Module:
    module = nn.Linear(4, 2)
    module.forward = torch.tanh
    return nn.Sequential(module)


def test_a_chain_of_a_plans_layers_in_torch_has_a_twin() -> None:
    activations = [kind() for kind in modules.ACTIVATIONS.values()]
    norm = nn.LayerNorm(5, eps=0.1)
    module = nn.Sequential(nn.Linear(3, 5), nn.Sequential(*activations, norm), nn.Flatten())
    plan = torch_bodies.recognize(module)
    assert plan is not None
    weights = modules.read(plan, chain := nn.Sequential(*torch_bodies.chain(module)))
    x = np.random.default_rng(0).normal(size=(6, 2, 3)).astype(np.float32)
    expected = module(torch.as_tensor(x)).detach().numpy()
    np.testing.assert_allclose(Twin(plan, weights)(x), expected, rtol=1e-5, atol=1e-5)
    modules.write(plan, chain, {n: w + np.float32(1) for n, w in weights.items()})
    changed = modules.read(plan, chain)
    assert all(np.allclose(changed[n], w + 1, atol=1e-6) for n, w in weights.items())


def of_layers(*layers: Any) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(nn.Linear(4, 8), *layers)


OTHERS = {
    "no bias": lambda: nn.Linear(4, 8, bias=False),
    "spectral norm": lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(4, 2)),
    "a subclass": lambda: Reversed(nn.Linear(4, 4), nn.Tanh()),
    "a hook": lambda: nn.Sequential(hooked(nn.Linear(4, 2))),
    "a hook on a chain": lambda: nn.Sequential(hooked(of_layers()())),
    "another forward": replaced,
    "nothing learned": nn.Tanh,
    "batch norm": of_layers(nn.BatchNorm1d(8)),
    "layer norm without weights": of_layers(nn.LayerNorm(8, elementwise_affine=False)),
    "layer norm of two axes": of_layers(nn.LayerNorm((6, 8))),
    "another gelu": of_layers(nn.GELU("tanh")),
    "another elu": of_layers(nn.ELU(0.5)),
    "a softplus that is linear early": of_layers(nn.Softplus(threshold=0.5)),
    "flat but for an axis": of_layers(nn.Flatten(2)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_any_other_torch_module_has_no_plan(name) -> None:
    assert torch_bodies.recognize(OTHERS[name]()) is None


KERAS = """
    import json

    import keras
    import numpy as np
    from keras import layers
    from keras.layers import Activation, Conv2D, Dense, Flatten, LayerNormalization, Rescaling

    from tandem.networks import keras_layers as models
    from tandem.networks.keras_bodies import recognize
    from tandem.networks.plan import Twin
    from tests.networks.chains import DIGITS, box


    def double(x):
        return 2 * x


    double.__name__ = "tanh"
    vector, image, lora = box(4), box(9, 7, 2, dtype="uint8"), Dense(8)
    first, deep, twice = keras.Input((4,)), Dense(4), Dense(4)
    inner = keras.Model(first, layers.Identity()(layers.ReLU()(Activation("gelu")(first))))
    cases = {
        "vectors": (vector, [LayerNormalization(), Dense(4, "tanh"), inner, Dense(3, "elu")]),
        "images": (image, [Rescaling(1 / 255), Conv2D(4, 3, 2, activation="relu"), Flatten()]),
        "digits": (DIGITS, [keras.Input((3,)), Dense(4)]),
        "no bias": (vector, [Dense(8, use_bias=False)]),
        "double precision": (vector, [Dense(8, dtype="float64")]),
        "another function of that name": (vector, [Dense(8, activation=double)]),
        "another activation": (vector, [Dense(8, "leaky_relu")]),
        "a capped relu": (vector, [Dense(8), layers.ReLU(6)]),
        "another elu": (vector, [Dense(8), layers.ELU(0.5)]),
        "layer norm without a bias": (vector, [Dense(8), LayerNormalization(center=False)]),
        "batch norm": (vector, [Dense(8), layers.BatchNormalization()]),
        "nothing learned": (vector, [Activation("tanh")]),
        "other scales": (vector, [Rescaling([1.0, 2.0, 3.0, 4.0]), Dense(8)]),
        "padded images": (image, [Rescaling(1 / 255), Conv2D(4, 3, padding="same"), Flatten()]),
        "bytes": (image, [Flatten(), Dense(3)]),
        "low rank": (vector, [lora]),
        "around": (vector, keras.Model(first, first + deep(first))),
        "twice": (vector, keras.Model(first, twice(twice(first)))),
    }
    for name, (leaf, model) in cases.items():
        model = keras.Sequential(model) if isinstance(model, list) else model
        x = np.random.default_rng(0).integers(0, 3, (5, *leaf.shape)).astype(leaf.dtype)
        expected = keras.ops.convert_to_numpy(model(keras.ops.convert_to_tensor(x)))
        if name == "low rank":
            lora.enable_lora(2)
        found = recognize(model, leaf)
        if found is not None:
            out = Twin(found[0], models.read(found[1]))(x)
            np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5, err_msg=name)
            print(json.dumps(name))
"""


@pytest.mark.slow
def test_chains_of_a_plans_layers_in_keras_have_twins_and_others_have_none() -> None:
    assert run_python(KERAS, engine="keras-torch") == ["vectors", "images", "digits"]


def good(facts: dict[str, Any], name: str) -> None:
    if name == "with_a_plan":
        assert facts == dict.fromkeys(("planned", "trains alike", "acts alike", "exported"), True)
    else:
        exported = {} if facts.get("exported") is None else {"exported": True}
        assert facts == exported | {
            "planned": False,
            "learns": True,
            "resumes": True,
            "repeats": True,
            "refused": "export it to onnx instead.",
        }


@pytest.mark.slow
@pytest.mark.parametrize("made", [chains.with_a_plan, chains.without_a_plan])
def test_runs_with_chains_in_torch(made, tmp_path) -> None:
    pytest.importorskip("onnxruntime")
    good(made("torch", tmp_path), made.__name__)


BOTH = "with_a_plan without_a_plan"
WHOLE = [pytest.param(e, BOTH, marks=pytest.mark.thorough) for e in ("keras-torch", "tensorflow")]


@pytest.mark.slow
@pytest.mark.parametrize("engine, made", [("jax", BOTH), ("tensorflow", BOTH[12:]), *WHOLE])
def test_runs_with_chains_in_keras(engine, made, tmp_path) -> None:
    pytest.importorskip("onnxruntime")
    given = [str(tmp_path), *made.split()]
    rows = run_python(Path(chains.__file__), engine, *given, engine=engine, timeout=290)
    assert [name for name, _ in rows] == made.split()
    for name, facts in rows:
        good(facts, name)


@pytest.mark.slow
def test_workers_act_through_the_framework_where_there_is_no_plan() -> None:
    made = tandem.train("dqn", Lights, network=chains.other, framework="torch", workers=2, **LEARN)
    assert made.evaluation.mean == 6.0
