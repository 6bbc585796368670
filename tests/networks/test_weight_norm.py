"""Weight norm: kernels are g v / ||v||, and begin as those of plain layers."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from tandem.networks.defaults import mlp
from tandem.networks.plan import Conv, Dense, LayerNorm, init
from tandem.networks.weight_norm import WeightNormConv, WeightNormDense, normalized, weight_normed
from tandem.spaces import Leaf
from tandem.testing import fakes

PAIRS = [
    (Dense(4, 3, "tanh"), WeightNormDense(4, 3, "tanh"), (5, 4)),
    (Conv(2, 3, 2, 1), WeightNormConv(2, 3, 2, 1), (5, 4, 4, 2)),
]


@pytest.mark.parametrize("plain, normed, shape", PAIRS, ids=["dense", "convolution"])
def test_a_layer_is_that_of_its_directions_and_lengths(plain: Any, normed: Any, shape: Any) -> None:
    rng = np.random.default_rng(0)
    w = {n: rng.normal(size=x.shape) for n, x in normed.init(rng).items()}
    kernel = np.empty_like(w["kernel"])
    for unit in range(3):
        v = w["kernel"][..., unit]
        kernel[..., unit] = w["scale"][unit] * v / np.sqrt((v**2).sum())
    np.testing.assert_allclose(normalized(w), kernel, rtol=1e-12)
    x = rng.normal(size=shape)
    wanted = plain.forward({"kernel": kernel, "bias": w["bias"]}, x)
    np.testing.assert_allclose(normed.forward(w, x), wanted, rtol=1e-12, atol=1e-12)
    longer = {**w, "kernel": 7.0 * w["kernel"]}  # how long v is does not matter
    np.testing.assert_allclose(normed.bound(longer)(x), wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("plain, normed, shape", PAIRS, ids=["dense", "convolution"])
def test_it_begins_as_the_plain_layer(plain: Any, normed: Any, shape: Any) -> None:
    first, own = (layer.init(np.random.default_rng(3)) for layer in (plain, normed))
    assert all(np.array_equal(own[n], x) for n, x in first.items())
    assert own.keys() - first.keys() == {"scale"} and own["scale"].dtype == np.float32
    np.testing.assert_allclose(normalized(own), first["kernel"], rtol=1e-6)


def test_a_body_keeps_what_is_no_dense_layer() -> None:
    picture = Leaf("box", (36, 36, 1), "uint8")
    body = mlp({"a": picture, "b": fakes.VECTOR}, (8,), "relu", layer_norm=True)
    normed = weight_normed(body)
    kinds = [type(x) for x in normed[0].plans["a"]]
    assert kinds.count(WeightNormConv) == 3 and kinds.count(WeightNormDense) == 1
    assert [type(x) for x in normed[1:]][:2] == [WeightNormDense, LayerNorm]
    assert all(getattr(normed[1], f.name) == getattr(body[1], f.name) for f in fields(Dense))
    assert weight_normed(normed) == normed
    rng = np.random.default_rng(0)
    assert init(normed, rng).keys() > init(body, rng).keys()
