"""Batch renormalisation against the numbers of SBX 0.28 (`sbx.common.jax_layers.BatchRenorm`, with
momentum 0.9 and epsilon 1e-8, after three passes over a batch that grows)."""

from __future__ import annotations

import numpy as np
import pytest

from tandem.networks.defaults import mlp
from tandem.networks.plan import Cast, Conv, Dense, Flatten, Image
from tandem.networks.renorm import BatchRenorm, renormalized
from tandem.spaces import Leaf
from tandem.testing import fakes

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
    picture = mlp(Leaf("box", (36, 36, 1), "uint8"), (8,), "relu")
    kinds = [type(layer) for layer in renormalized(picture, 0.99, 1)]
    assert kinds == [Image, Conv, Conv, Conv, Flatten, Dense, BatchRenorm]
