"""Users' own networks: those that a plan can express get a twin that puts out the same, the others
are honestly left alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tandem.networks import torch_known
from tandem.networks import torch_layers as modules
from tandem.networks.torch_sequences import EveryStep, LastStep
from tests.helpers import run_python
from tests.networks import layer_cases
from tests.networks.layer_cases import CASES, DIGIT, box, observations, worst

CASES_OF_TORCH = [name for name, case in CASES.items() if case.torch is not None]


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


def made(name: str) -> nn.Module:
    """A module of a case, with weights that hide nothing, and statistics that have moved."""
    case = CASES[name]
    torch.manual_seed(0)
    module = nn.Sequential(*case.torch(nn))
    with torch.no_grad():
        module.train()(torch.as_tensor(observations(case.leaf)))
        for w in module.parameters():
            w += 0.1 * torch.randn(w.shape, generator=torch.Generator().manual_seed(0))
    return module.eval()


def output(module: nn.Module, x: Any) -> Any:
    with torch.no_grad():
        return module(torch.as_tensor(x)).numpy()


def planned(name: str) -> tuple[Any, nn.Module, nn.Module]:
    """Its plan, itself, and the chain that the plan is of."""
    module = made(name)
    plan = torch_known.recognise(module, CASES[name].leaf)
    assert plan is not None
    return plan, module, nn.Sequential(*torch_known.chain(module))


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("name", CASES_OF_TORCH)
def test_a_known_torch_module_has_a_twin(name) -> None:
    plan, module, chain = planned(name)
    x = observations(CASES[name].leaf)
    expected = output(module, x)
    weights = modules.read(plan, chain)
    assert worst(plan, weights, CASES[name].leaf, x, expected) < 2e-6
    before = [t.clone() for t in module.state_dict().values()]
    modules.write(plan, chain, weights)  # changes nothing
    assert all(map(torch.equal, before, module.state_dict().values()))
    modules.write(plan, chain, {n: w + np.float32(0.1) for n, w in weights.items()})
    changed = modules.read(plan, chain)
    assert all(np.allclose(changed[n], w + 0.1, atol=1e-6) for n, w in weights.items())


def of_layers(*layers: Any) -> Any:
    return lambda: nn.Sequential(*layers)


VECTOR, SEQUENCE, PICTURE = box(4), box(6, 3), box(2, 7, 5)
LINEAR = nn.Linear(4, 8)
UNKNOWN = {
    "double precision": (VECTOR, of_layers(nn.Linear(4, 8).double())),
    "statistics in double precision": (
        VECTOR,
        of_layers(nn.BatchNorm1d(4, affine=False).double(), nn.Linear(4, 8)),
    ),
    "layer norm without weights": (
        VECTOR,
        of_layers(LINEAR, nn.LayerNorm(8, elementwise_affine=False)),
    ),
    "layer norm of two axes": (SEQUENCE, of_layers(nn.LayerNorm((6, 3)), nn.Flatten())),
    "batch norm without statistics": (
        VECTOR,
        of_layers(LINEAR, nn.BatchNorm1d(8, track_running_stats=False)),
    ),
    "batch norm by a count": (VECTOR, of_layers(LINEAR, nn.BatchNorm1d(8, momentum=None))),
    "a softmax of another axis": (SEQUENCE, of_layers(nn.Linear(3, 2), nn.Softmax(1))),
    "a norm of each row": (PICTURE, of_layers(nn.InstanceNorm2d(2, affine=True), nn.Flatten())),
    "a subclass": (VECTOR, lambda: Reversed(nn.Linear(4, 4), nn.Tanh())),
    "a hook": (VECTOR, lambda: nn.Sequential(hooked(nn.Linear(4, 2)))),
    "a hook on a chain": (VECTOR, lambda: nn.Sequential(hooked(of_layers(nn.Linear(4, 2))()))),
    "another forward": (VECTOR, replaced),
    "nothing learned": (VECTOR, of_layers(nn.Tanh())),
    "a softplus that is linear early": (VECTOR, of_layers(LINEAR, nn.Softplus(threshold=0.5))),
    "spectral norm": (
        VECTOR,
        lambda: nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(4, 2))),
    ),
    "embeddings of a norm": (DIGIT, of_layers(nn.Embedding(5, 3, max_norm=1.0))),
    "an lstm of two layers": (
        SEQUENCE,
        of_layers(nn.LSTM(3, 5, 2, batch_first=True), LastStep()),
    ),
    "an lstm both ways": (
        SEQUENCE,
        of_layers(nn.LSTM(3, 5, batch_first=True, bidirectional=True), LastStep()),
    ),
    "an lstm over the batch": (SEQUENCE, of_layers(nn.LSTM(3, 5), EveryStep(), nn.Flatten())),
    "an lstm with a projection": (
        SEQUENCE,
        of_layers(nn.LSTM(3, 5, batch_first=True, proj_size=2), LastStep()),
    ),
    "groups": (PICTURE, of_layers(nn.Conv2d(2, 4, 3, groups=2), nn.Flatten())),
    "dilated": (PICTURE, of_layers(nn.Conv2d(2, 4, 2, dilation=2), nn.Flatten())),
    "mirrored": (
        PICTURE,
        of_layers(nn.Conv2d(2, 4, 3, padding=1, padding_mode="reflect"), nn.Flatten()),
    ),
    "pools up to the edge": (
        PICTURE,
        of_layers(nn.Conv2d(2, 4, 1), nn.MaxPool2d(3, ceil_mode=True), nn.Flatten()),
    ),
    "pools of several sizes": (
        PICTURE,
        of_layers(nn.Conv2d(2, 4, 1), nn.AdaptiveAvgPool2d(2), nn.Flatten()),
    ),
    "an average by another number": (
        PICTURE,
        of_layers(nn.Conv2d(2, 4, 1), nn.AvgPool2d(2, divisor_override=3), nn.Flatten()),
    ),
    "flat but for an axis": (PICTURE, of_layers(nn.Flatten(2), nn.Linear(35, 2), nn.Flatten())),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_any_other_torch_module_is_left_alone(name) -> None:
    leaf, make = UNKNOWN[name]
    assert torch_known.recognise(make(), leaf) is None


KERAS = """
    import json
    import keras, numpy as np
    from keras import layers
    from tandem.networks.keras_known import recognise
    from tests.networks.layer_cases import CASES, DIGIT, box, observations


    def double(x):
        return 2 * x


    double.__name__ = "tanh"

    vector, sequence, picture = box(4), box(6, 3), box(7, 5, 2)
    dense = layers.Dense(8)
    unknown = {
        "double precision": (vector, [layers.Dense(8, dtype="float64")]),
        "half precision": (vector, [layers.Dense(8, dtype="mixed_bfloat16")]),
        "a relu of both kinds": (vector, [dense, layers.ReLU(6, 0.1)]),
        "a shifted relu": (vector, [dense, layers.ReLU(threshold=1.0)]),
        "another function of that name": (vector, [layers.Dense(8, activation=double)]),
        "another activation": (vector, [layers.Dense(8, activation="sparsemax")]),
        "layer norm without a bias": (vector, [dense, layers.LayerNormalization(center=False)]),
        "nothing learned": (vector, [layers.Activation("tanh")]),
        "a function": (vector, [dense, layers.Lambda(double)]),
        "a softmax of another axis": (sequence, [layers.Dense(2), layers.Softmax(1)]),
        "prelu of a sequence": (sequence, [layers.PReLU(), layers.Flatten()]),
        "masked": (box(4, dtype="uint8"), [layers.Embedding(9, 3, mask_zero=True), layers.LSTM(2)]),
        "an lstm backwards": (sequence, [layers.LSTM(5, go_backwards=True)]),
        "another lstm": (sequence, [layers.LSTM(5, activation="relu")]),
        "an lstm both ways": (sequence, [layers.Bidirectional(layers.LSTM(5))]),
        "groups": (picture, [layers.Conv2D(4, 3, groups=2), layers.Flatten()]),
        "dilated": (picture, [layers.Conv2D(4, 2, dilation_rate=2), layers.Flatten()]),
    }
    for name, (leaf, chain) in unknown.items():
        model = keras.Sequential(chain)
        model(keras.ops.convert_to_tensor(observations(leaf)))
        print(json.dumps([name, recognise(model, leaf) is None]))


    def functional(*chain):
        first = y = keras.Input((4,))
        for layer in chain:
            y = layer(y)
        return keras.Model(first, y)


    x, twice = keras.Input((4,)), layers.Dense(4)
    for name, model, known in (
        ("around", keras.Model(x, x + twice(x)), False),
        ("twice", keras.Model(x, twice(twice(x))), False),
        ("of two inputs", keras.Model([x, keras.Input((4,))], layers.Dense(2)(x)), False),
        ("a row", functional(layers.Dense(8), layers.Dropout(0.1)), True),
        (
            "rows in a row",
            functional(
                layers.Dense(4), keras.Sequential([layers.Dense(4)]), functional(layers.ReLU())
            ),
            True,
        ),
        ("another inside", functional(keras.Model(x, x + layers.Dense(4)(x))), False),
    ):
        found = recognise(model, vector)
        off = 0.0
        if found is not None:
            from tandem.networks import keras_layers as models
            from tandem.networks.plan import Twin

            seen = observations(vector)
            out = keras.ops.convert_to_numpy(model(seen, training=False))
            off = Twin(found[0], models.read(found[1]))(seen) - out
        print(json.dumps([name, (found is not None) == known and float(np.abs(off).max()) < 2e-6]))
"""


@pytest.mark.slow
def test_any_other_keras_model_is_left_alone() -> None:
    for name, right in run_python(KERAS, engine="keras-torch"):
        assert right is True, name


@pytest.mark.parametrize(
    "engine",
    [
        pytest.param("tensorflow", marks=pytest.mark.slow),
        pytest.param("jax", marks=pytest.mark.thorough),  # it compiles every operation
        pytest.param("keras-torch", marks=pytest.mark.thorough),
    ],
)
def test_keras_has_the_same_layers_and_weights_travel(engine, tmp_path) -> None:
    theirs: dict[str, Any] = {}
    torch_s = {name: planned(name) for name in CASES_OF_TORCH if CASES[name].keras is not None}
    for name, (plan, _, chain) in torch_s.items():
        theirs |= {f"{name}: {n}": w for n, w in modules.read(plan, chain).items()}
    np.savez(tmp_path / "torch.npz", **theirs)
    script, file = Path(layer_cases.__file__), tmp_path / "found.npz"
    rows = run_python(script, str(tmp_path / "torch.npz"), str(file), engine=engine)
    assert [name for name, _ in rows] == [n for n, case in CASES.items() if case.keras is not None]
    for name, off in rows:
        known = engine != "keras-torch" or name != "an uneven average"  # which is another one there
        assert (off is not None) == known, name
        assert off is None or off < 5e-6, name
    found = np.load(file)
    for name, (plan, module, chain) in torch_s.items():
        x = observations(CASES[name].leaf)
        expected = output(module, x)
        kept = {"rtol": 1e-5, "atol": 1e-5, "err_msg": name}
        np.testing.assert_allclose(found[f"{name}: of torch"], expected, **kept)
        own = {n: found[f"{name}: {n}"] for n in modules.read(plan, chain)}
        modules.write(plan, chain, own)
        np.testing.assert_allclose(output(module, x), found[f"{name}: output"], **kept)
