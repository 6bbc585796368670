"""SimBa's layers and SimbaV2's: the sums that they say, and weights of length 1."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
import pytest

from tandem import algorithms
from tandem.errors import SettingError
from tandem.math.optimization import on_sphere, unit_columns
from tandem.networks import torch_layers
from tandem.networks.plan import Cast, Dense, Dueling, LayerNorm, Streams, Twin, init
from tandem.networks.policy_layers import StateDependent
from tandem.networks.simba import ResidualBlock, RunningNorm, simba
from tandem.networks.simbav2 import LerpBlock, SphericalEmbedding, UnitHead, simbav2, unit_headed
from tandem.networks.unit import is_unit
from tandem.spaces import Leaf
from tandem.testing import contracts, fakes
from tandem.testing import environments as games

PICTURE = Leaf("box", (36, 36, 1), "uint8")


def test_its_statistics_are_those_of_all_rows() -> None:
    rng = np.random.default_rng(0)
    batches = [rng.normal(m, s, (n, 3)).astype(np.float32) for m, s, n in ((2, 3, 8), (-5, 1, 32))]
    layer = RunningNorm(3)
    w = layer.init(rng)
    for x in batches:
        out, moved = layer.train(w, x)
        w = w | moved
    rows = np.concatenate(batches)
    np.testing.assert_allclose(w["moving_mean"], rows.mean(0), rtol=1e-5)
    np.testing.assert_allclose(w["moving_variance"], rows.var(0), rtol=1e-5)
    assert w["moving_count"] == 40
    wanted = (batches[-1] - rows.mean(0)) / np.sqrt(rows.var(0) + 1e-5)
    np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(out, layer.forward(w, batches[-1]))


def test_a_block_adds_what_its_layers_make() -> None:
    rng = np.random.default_rng(1)
    block = ResidualBlock(4)
    w = block.init(rng)
    assert w["wide_kernel"].shape == (4, 16) and w["narrow_kernel"].shape == (16, 4)
    x = rng.normal(size=(5, 4)).astype(np.float32)
    normal = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    wide = np.maximum(normal @ w["wide_kernel"] + w["wide_bias"], 0)
    wanted = x + wide @ w["narrow_kernel"] + w["narrow_bias"]
    np.testing.assert_allclose(block.forward(w, x), wanted, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(block.bound(w)(x), wanted, rtol=1e-4, atol=1e-5)


def test_weights_are_read_without_being_drawn_anew(monkeypatch) -> None:
    plan = simba(fakes.VECTOR, (8,), "relu")
    module, weights = torch_layers.build(plan), init(plan, np.random.default_rng(0))

    def draws(*_: object) -> None:
        raise AssertionError("weights are drawn")

    for kind in (RunningNorm, ResidualBlock):
        monkeypatch.setattr(kind, "init", draws)
    torch_layers.write(plan, module, weights)
    found = torch_layers.read(plan, module)
    assert list(found) == list(weights)
    assert all(np.array_equal(found[n], x) for n, x in weights.items())


def test_the_body_has_a_block_of_each_width() -> None:
    plan = simba(fakes.VECTOR, (8, 8), "relu")
    kinds = [Cast, RunningNorm, Dense, ResidualBlock, ResidualBlock, LayerNorm]
    assert [type(layer) for layer in plan] == kinds
    twin = Twin(plan, init(plan, np.random.default_rng(0)))
    assert twin(np.ones((2, 4), np.float32)).shape == (2, 8)
    assert not any(isinstance(x, ResidualBlock) for x in simba(PICTURE, (8,), "relu"))
    for widths in ((8, 16), ()):
        with pytest.raises(SettingError, match="body=.simba. with layers of") as caught:
            simba(fakes.VECTOR, widths, "relu")
        assert "hidden=(128,)" in caught.value.fix


def sphere(x: Any) -> Any:
    return np.stack([row / np.sqrt((row**2).sum()) for row in np.asarray(x, np.float64)])


def test_lengths_are_one_and_a_gradient_is_there_at_zero() -> None:
    x = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    np.testing.assert_allclose(on_sphere(x), sphere(x), rtol=1e-6)
    np.testing.assert_allclose(unit_columns(x), sphere(x.T).T, rtol=1e-6)
    assert not on_sphere(np.zeros((2, 3), np.float32)).any()


def test_layers_are_the_papers() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(5, 4)).astype(np.float32)
    layer = SphericalEmbedding(4, 8)
    w = layer.init(rng)
    assert np.allclose(w["scaler"], sqrt(2 / 8))
    shifted = sphere(np.concatenate([x, np.full((5, 1), 3.0)], 1))
    features = sphere(shifted @ w["unit_kernel"] * w["scaler"])
    np.testing.assert_allclose(layer.forward(w, x), features, rtol=1e-5, atol=1e-6)
    block = LerpBlock(8, 2)
    w = block.init(rng)
    assert w["wide_unit_kernel"].shape == (8, 32) and w["narrow_unit_kernel"].shape == (32, 8)
    assert np.allclose(w["scaler"], sqrt(2 / 8) / 2) and np.allclose(block.steps(w), 1 / 3)
    wide = np.maximum(features @ w["wide_unit_kernel"] * w["scaler"], 0)
    far = sphere(wide @ w["narrow_unit_kernel"])
    wanted = sphere(features + (far - features) / 3)
    found = block.forward(w, features.astype(np.float32))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    head = UnitHead(8, 3)
    w = {n: v + np.float32(0.1) for n, v in head.init(rng).items()}
    wanted = (features @ w["hidden_unit_kernel"] * w["scaler"]) @ w["unit_kernel"] + w["bias"]
    np.testing.assert_allclose(head.forward(w, features), wanted, rtol=1e-5)


def test_the_body_of_simbav2_has_a_block_of_each_width_and_a_head_of_its_kind() -> None:
    plan = simbav2(fakes.VECTOR, (8, 8), "relu")
    assert [type(x) for x in plan] == [Cast, RunningNorm, SphericalEmbedding, LerpBlock, LerpBlock]
    first = init(plan, np.random.default_rng(0))
    assert sum(map(is_unit, first)) == 5
    for name in filter(is_unit, first):
        np.testing.assert_allclose((first[name] ** 2).sum(0), 1, rtol=1e-5)
    assert not any(isinstance(x, LerpBlock) for x in simbav2(PICTURE, (8,), "relu"))
    with pytest.raises(SettingError, match="body=.simbav2. with layers of 8, 16"):
        simbav2(fakes.VECTOR, (8, 16), "relu")
    (fork,) = unit_headed((Streams({"a": (Dense(0, 2), Dense(2, 1)), "b": (Dense(0, 1),)}),))
    assert [type(x) for x in fork.plans["a"]] == [Dense, UnitHead]
    (dueling,) = unit_headed((Dueling((Dense(0, 1),), (Dense(0, 3),)),))
    assert isinstance(dueling.advantage[0], UnitHead)
    assert unit_headed((StateDependent(0, 2),)) == (StateDependent(0, 2),)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_weights_have_length_one_after_each_step(optimizer: str) -> None:
    settings = {"hidden": (8,), "steps": 200, "learning_starts": 20, "batch_size": 16}
    settings |= {"body": "simbav2", "optimizer": optimizer, "learning_rate": 0.1}
    loop = contracts.begin(algorithms.get("sac"), games.IdentityBox, "torch", **settings)
    first = contracts.weights(loop)
    contracts.train(loop, 30)
    found = {n: x for n, x in contracts.weights(loop).items() if is_unit(n)}
    assert len(found) == 5 * 5 and all(np.abs(x - first[n]).max() > 1e-3 for n, x in found.items())
    for name in (n for n in found if "target" not in n):  # targets are means of such weights
        np.testing.assert_allclose((found[name] ** 2).sum(0), 1, rtol=1e-5)
