"""Layers: their first weights, where they stand in a plan, batch renormalization as in SBX 0.28
(`sbx.common.jax_layers.BatchRenorm`), memories step by step, and the noise of noisy ones. (The
parity suite compares what they compute with their papers.)"""

from dataclasses import fields
from math import sqrt
from typing import Any

import numpy as np
import pytest

from tandem import algorithms
from tandem.errors import SettingError
from tandem.math.optimization import on_sphere
from tandem.networks import plan as layers
from tandem.networks import torch_layers
from tandem.networks.defaults import fit, mlp
from tandem.networks.noisy import NoisyDense, draw, noisy
from tandem.networks.plan import Cast, Conv, Dense, Dueling, LayerNorm, Twin, init
from tandem.networks.policy_layers import StateDependent
from tandem.networks.recurrent import GRU, LSTMCell, Memory, Recurrent
from tandem.networks.renorm import BatchRenorm, renormalized
from tandem.networks.simba import ResidualBlock, RunningNorm, simba
from tandem.networks.simbav2 import LerpBlock, SphericalEmbedding, UnitHead, simbav2, unit_headed
from tandem.networks.unit import is_unit
from tandem.networks.weight_norm import WeightNormConv, WeightNormDense, normalized, weight_normed
from tandem.spaces import Leaf
from tandem.testing import contracts, fakes
from tandem.testing import environments as games
from tests.networks.plans import CASES

PICTURE = Leaf("box", (36, 36, 1), "uint8")
# momentum 0.9 and epsilon 1e-8, after three passes over a batch that grows
X = np.array([[0.5, -2, 30], [1.5, 0.5, 31], [-0.5, 4, 35], [2.5, 1, 28]], np.float32)
MEAN, VARIANCE = [0.329, 0.287875, 10.198999], [1.23725, 2.5777595, 3.3718987]
CORRECTED = [[0.466667, -2.1796219, 4.0830259], [1.8, 0.377119, 5.0]]
CORRECTED += [[-0.8666667, 3.956558, 8.6679087], [3.1333333, 0.888468, 2.2490741]]
PLAIN = [[-0.447214, -1.348284, -0.39223], [0.447214, -0.175863, 0.0]]
PLAIN += [[-1.3416409, 1.465526, 1.568923], [1.3416409, 0.058621, -1.176691]]
PAIRS = [
    (Dense(4, 3, "tanh"), WeightNormDense(4, 3, "tanh"), (5, 4)),
    (Conv(2, 3, 2, 1), WeightNormConv(2, 3, 2, 1), (5, 4, 4, 2)),
]
SHAPES = {"3/kernel_noise": (6, 4), "3/bias_noise": (4,)}
SHAPES |= {"5/kernel_noise": (2, 3), "5/bias_noise": (3,)}
L, S, F = 7, 3, 4


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
    assert kinds == [layers.Image, Conv, Conv, Conv, layers.Flatten, Dense, BatchRenorm]


# Weight norm: kernels are g v / ||v||


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


def test_layers_begin_as_in_the_paper() -> None:
    rng = np.random.default_rng(1)
    assert np.allclose(SphericalEmbedding(4, 8).init(rng)["scaler"], sqrt(2 / 8))
    block = LerpBlock(8, 2)
    w = block.init(rng)
    assert w["wide_unit_kernel"].shape == (8, 32) and w["narrow_unit_kernel"].shape == (32, 8)
    assert np.allclose(w["scaler"], sqrt(2 / 8) / 2) and np.allclose(block.steps(w), 1 / 3)
    w = ResidualBlock(4).init(rng)
    assert w["wide_kernel"].shape == (4, 16) and w["narrow_kernel"].shape == (16, 4)
    assert not on_sphere(np.zeros((2, 3), np.float32)).any()  # finite where there is no direction


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
    (fork,) = unit_headed((layers.Streams({"a": (Dense(0, 2), Dense(2, 1)), "b": (Dense(0, 1),)}),))
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


def test_without_noise_it_is_a_dense_layer() -> None:
    both = Dense(16, 3, "tanh"), NoisyDense(16, 3, "tanh")
    plain, loud = (layer.init(np.random.default_rng(4)) for layer in both)
    assert all(np.array_equal(plain[n], loud[n]) for n in plain)
    for name in ("kernel", "bias"):
        assert (loud[f"{name}_sigma"] == np.float32(0.125)).all()
        assert not loud[f"{name}_noise"].any()
        assert loud[f"{name}_sigma"].shape == loud[f"{name}_noise"].shape == loud[name].shape
    x = np.random.default_rng(0).normal(size=(5, 16)).astype(np.float32)
    np.testing.assert_array_equal(both[0].forward(plain, x), both[1].forward(loud, x))


def test_only_output_layers_of_a_head_are_noisy() -> None:
    given = 0, 4, "tanh", "orthogonal", 0.01
    assert noisy((Dense(*given), layers.Scale(4))) == (NoisyDense(*given), layers.Scale(4))
    assert noisy((Dense(0, 8, "relu"), Dense(8, 2))) == (Dense(0, 8, "relu"), NoisyDense(8, 2))
    streams = Dueling((Dense(0, 8, "relu"), Dense(8, 1)), (Dense(0, 8, "relu"), Dense(8, 3)))
    plan = (Cast(4), *fit(noisy((streams,)), 4))
    assert plan[1] == Dueling(
        (Dense(4, 8, "relu"), NoisyDense(8, 1)), (Dense(4, 8, "relu"), NoisyDense(8, 3))
    )
    named = {f"1/{s}/1/{n}_noise" for s in ("value", "advantage") for n in ("kernel", "bias")}
    first = init(plan, np.random.default_rng(0))
    assert layers.frozen(plan) == named == {n for n in first if n.endswith("_noise")}


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


@pytest.mark.parametrize("kind, bias", [(GRU, (2, 12)), (LSTMCell, (16,))])
def test_each_gate_begins_orthogonal(kind: type[Memory], bias: tuple[int, ...]) -> None:
    first = kind(6, 4).init(np.random.default_rng(0))
    for name in ("kernel", "recurrent"):
        for gate in np.split(first[name], kind.gates, -1):
            np.testing.assert_allclose(gate.T @ gate, np.eye(4), atol=1e-6)
    assert not first["bias"].any() and first["bias"].shape == bias


@pytest.mark.parametrize("case", ["recurrent", "lstm"])
def test_a_twin_takes_sequences_and_single_steps_alike(case: str) -> None:
    _, plan = CASES[case]
    (layer,) = plan
    assert isinstance(layer, Recurrent)
    rng = np.random.default_rng(3)
    twin = Twin(plan, init(plan, rng))
    obs = rng.normal(size=(L, S, F)).astype(np.float32)
    state = rng.normal(size=(S, layer.cell.size)).astype(np.float32)
    start = (rng.random((L, S)) < 0.3).astype(np.float32)
    whole = twin({"obs": obs.reshape(-1, F), "state": state, "start": start.reshape(-1)})
    whole = whole.reshape(L, S, -1)
    for t in range(L):
        out = twin({"obs": obs[t], "state": state, "start": start[t]})
        np.testing.assert_allclose(out, whole[t], atol=1e-6)
        state = out[:, -layer.cell.size :]
