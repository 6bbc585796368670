"""Noisy layers: their equation, their first weights, where they stand, and their noise."""

from __future__ import annotations

import numpy as np
import pytest

from tandem.networks.defaults import fit
from tandem.networks.noisy import NoisyDense, draw, noisy
from tandem.networks.plan import Cast, Dense, Dueling, Scale, Twin, frozen, init


def test_the_equation_by_hand() -> None:
    w = {
        "kernel": [[1.0, 2.0], [3.0, 4.0]],
        "kernel_sigma": [[0.5, 1.0], [0.0, 2.0]],
        "kernel_noise": [[2.0, -1.0], [9.0, 0.5]],
        "bias": [10.0, 20.0],
        "bias_sigma": [1.0, 0.5],
        "bias_noise": [-3.0, 4.0],
    }
    weights = {f"0/{n}": np.array(x, np.float32) for n, x in w.items()}
    # kernel [[1 + 1, 2 - 1], [3 + 0, 4 + 1]], bias [10 - 3, 20 + 2]
    x, twin = np.array([[1.0, 2.0]], np.float32), Twin((NoisyDense(2, 2),), weights)
    np.testing.assert_array_equal(twin(x), [[15.0, 33.0]])
    weights["0/bias_noise"][:] = 0.0  # what is published later is heard at once
    np.testing.assert_array_equal(twin(x), [[18.0, 31.0]])
    relu = Twin((NoisyDense(2, 2, "relu"),), weights)
    np.testing.assert_array_equal(relu(-x), [[2.0, 9.0]])
    np.testing.assert_array_equal(relu(-10 * x), [[0.0, 0.0]])


def test_without_noise_it_is_a_dense_layer() -> None:
    layers = Dense(16, 3, "tanh"), NoisyDense(16, 3, "tanh")
    plain, loud = (layer.init(np.random.default_rng(4)) for layer in layers)
    assert all(np.array_equal(plain[n], loud[n]) for n in plain)
    for name in ("kernel", "bias"):
        assert (loud[f"{name}_sigma"] == np.float32(0.125)).all()
        assert not loud[f"{name}_noise"].any()
        assert loud[f"{name}_sigma"].shape == loud[f"{name}_noise"].shape == loud[name].shape
    x = np.random.default_rng(0).normal(size=(5, 16)).astype(np.float32)
    np.testing.assert_array_equal(layers[0].forward(plain, x), layers[1].forward(loud, x))


def test_only_output_layers_of_a_head_are_noisy() -> None:
    given = 0, 4, "tanh", "orthogonal", 0.01
    assert noisy((Dense(*given), Scale(4))) == (NoisyDense(*given), Scale(4))
    assert noisy((Dense(0, 8, "relu"), Dense(8, 2))) == (Dense(0, 8, "relu"), NoisyDense(8, 2))
    streams = Dueling((Dense(0, 8, "relu"), Dense(8, 1)), (Dense(0, 8, "relu"), Dense(8, 3)))
    plan = (Cast(4), *fit(noisy((streams,)), 4))
    assert plan[1] == Dueling(
        (Dense(4, 8, "relu"), NoisyDense(8, 1)), (Dense(4, 8, "relu"), NoisyDense(8, 3))
    )
    named = {f"1/{s}/1/{n}_noise" for s in ("value", "advantage") for n in ("kernel", "bias")}
    first = init(plan, np.random.default_rng(0))
    assert frozen(plan) == named == {n for n in first if n.endswith("_noise")}


SHAPES = {"3/kernel_noise": (6, 4), "3/bias_noise": (4,)}
SHAPES |= {"5/kernel_noise": (2, 3), "5/bias_noise": (3,)}


@pytest.mark.parametrize("kind", ["independent", "factorised"])
def test_noise_follows_its_generator(kind) -> None:
    one, two, other = (draw(kind, np.random.default_rng(s), SHAPES, 7) for s in (1, 1, 2))
    assert {n: x.shape for n, x in one.items()} == {n: (7, *shape) for n, shape in SHAPES.items()}
    for n, x in one.items():
        assert x.dtype == np.float32 and np.array_equal(x, two[n])
        assert not np.array_equal(x, other[n])
        assert len(np.unique(x[..., 0].reshape(7, -1)[:, 0])) == 7  # each update has its own


def test_independent_noise_is() -> None:
    found = draw("independent", np.random.default_rng(0), SHAPES, 40_000)
    together = np.concatenate([x.reshape(40_000, -1) for x in found.values()], 1)  # [count, 37]
    assert np.abs(together.mean(0)).max() < 0.025
    np.testing.assert_allclose(np.cov(together.T), np.eye(37), atol=0.035)
    np.testing.assert_allclose((together**4).mean(0), 3.0, rtol=0.15)  # as of a normal distribution


def test_factorised_noise_is() -> None:
    found = draw("factorised", np.random.default_rng(0), SHAPES, 40_000)
    kernel, bias = found["3/kernel_noise"], found["3/bias_noise"]
    a = kernel[:, :, 0] / bias[:, :1]  # [count, inputs]
    # one outer product
    np.testing.assert_allclose(a[:, :, None] * bias[:, None, :], kernel, rtol=1e-4, atol=1e-4)
    for x in (bias, a):
        normal = np.sign(x) * x**2  # f undone
        assert np.abs(normal.mean(0)).max() < 0.025
        np.testing.assert_allclose(normal.var(0), 1.0, atol=0.035)
    mean = np.sqrt(2 / np.pi)  # E f(x)^2 = E|x|
    np.testing.assert_allclose((bias**2).mean(0), mean, rtol=0.02)
    np.testing.assert_allclose((kernel**2).mean(0), mean**2, rtol=0.06)
    np.testing.assert_allclose(np.cov(a.T), mean * np.eye(6), atol=0.03)
    assert abs(np.corrcoef(a[:, 0], bias[:, 0])[0, 1]) < 0.025
