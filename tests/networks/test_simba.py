"""SimBa's body: running statistics are those of all rows, and a block is the sum that it says."""

from __future__ import annotations

import numpy as np
import pytest

from tandem.errors import SettingError
from tandem.networks.plan import Cast, Dense, LayerNorm, Twin, init
from tandem.networks.simba import ResidualBlock, RunningNorm, simba
from tandem.spaces import Leaf
from tandem.testing import fakes


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
    """They are read after each update, to act by them; orthogonal ones take long to draw."""
    from tandem.networks import torch_layers

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
    picture = Leaf("box", (36, 36, 1), "uint8")
    assert not any(isinstance(x, ResidualBlock) for x in simba(picture, (8,), "relu"))
    for widths in ((8, 16), ()):
        with pytest.raises(SettingError, match="body=.simba. with layers of") as caught:
            simba(fakes.VECTOR, widths, "relu")
        assert "hidden=(128,)" in caught.value.fix
