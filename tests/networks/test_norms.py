"""Batch renormalization, against SBX 0.28 (`sbx.common.jax_layers.BatchRenorm`); weight norm."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from tandem.networks.defaults import mlp
from tandem.networks.plan import Cast, Conv, Dense, Flatten, Image, LayerNorm, init
from tandem.networks.renorm import BatchRenorm, renormalized
from tandem.networks.weight_norm import WeightNormConv, WeightNormDense, normalized, weight_normed
from tandem.spaces import Leaf
from tandem.testing import fakes

PICTURE = Leaf("box", (36, 36, 1), "uint8")
# momentum 0.9 and epsilon 1e-8, after three passes over a batch that grows
X = np.array([[0.5, -2, 30], [1.5, 0.5, 31], [-0.5, 4, 35], [2.5, 1, 28]], np.float32)
MEAN, VARIANCE = [0.329, 0.287875, 10.198999], [1.23725, 2.5777595, 3.3718987]
CORRECTED = [[0.466667, -2.1796219, 4.0830259], [1.8, 0.377119, 5.0]]
CORRECTED += [[-0.8666667, 3.956558, 8.6679087], [3.1333333, 0.888468, 2.2490741]]
PLAIN = [[-0.447214, -1.348284, -0.39223], [0.447214, -0.175863, 0.0]]
PLAIN += [[-1.3416409, 1.465526, 1.568923], [1.3416409, 0.058621, -1.176691]]


@pytest.mark.parametrize("warmup, wanted", [(0, CORRECTED), (5, PLAIN)])
def test_it_is_that_of_sbx(warmup, wanted) -> None:
    layer = BatchRenorm(3, 0.9, warmup, 1e-8)
    w = layer.init(np.random.default_rng(0))
    for i in range(3):
        out, moved = layer.train(w, (X * (1 + 0.2 * i)).astype(np.float32))
        w = w | moved
    np.testing.assert_allclose(out, wanted, atol=2e-5)
    np.testing.assert_allclose(w["moving_mean"], MEAN, rtol=1e-5)
    np.testing.assert_allclose(w["moving_variance"], VARIANCE, rtol=1e-5)
    acting = layer.forward(w, X)
    np.testing.assert_allclose(acting[0], [0.1537331, -1.4249877, 10.7832546], rtol=1e-5)
    assert {x.dtype for x in (out, acting, *w.values())} == {np.dtype(np.float32)}


def test_corrections_begin_after_the_warmup_and_stop_at_their_bounds() -> None:
    layer = BatchRenorm(1, 0.999, 2)
    w = layer.init(np.random.default_rng(0))
    far = np.array([[1000.0], [3000.0]], np.float32)
    found = []
    for passes in (1, 2, 2):
        out, moved = layer.train(w, far)
        found.append(out[:, 0])
        w = w | moved
        assert w["moving_count"] == passes
    # the deviation of 1000 is cut at three times the moving one, the mean of 2000 at five times
    np.testing.assert_allclose(found, [[-1, 1], [-1, 1], [2, 8]], rtol=1e-3)


def test_it_stands_before_the_first_dense_layer_and_behind_each() -> None:
    kinds = [type(layer) for layer in renormalized(mlp(fakes.VECTOR, (8, 8), "relu"), 0.99, 1)]
    assert kinds == [Cast, BatchRenorm, Dense, BatchRenorm, Dense, BatchRenorm]
    picture = mlp(PICTURE, (8,), "relu")
    kinds = [type(layer) for layer in renormalized(picture, 0.99, 1)]
    assert kinds == [Image, Conv, Conv, Conv, Flatten, Dense, BatchRenorm]


# Weight norm: kernels are g v / ||v||

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
    body = mlp({"a": PICTURE, "b": fakes.VECTOR}, (8,), "relu", layer_norm=True)
    normed = weight_normed(body)
    kinds = [type(x) for x in normed[0].plans["a"]]
    assert kinds.count(WeightNormConv) == 3 and kinds.count(WeightNormDense) == 1
    assert [type(x) for x in normed[1:]][:2] == [WeightNormDense, LayerNorm]
    assert all(getattr(normed[1], f.name) == getattr(body[1], f.name) for f in fields(Dense))
    assert weight_normed(normed) == normed
    rng = np.random.default_rng(0)
    assert init(normed, rng).keys() > init(body, rng).keys()
