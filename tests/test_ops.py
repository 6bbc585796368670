"""ops: NumPy's answers against SciPy and by hand, and every framework's against NumPy's;
tandem.math on all of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import special

from tandem import ops
from tests import ops_cases
from tests.helpers import run_python
from tests.ops_cases import INPUTS

X = INPUTS["x"]
xp = ops.of(X)


def test_of_finds_functions_by_type() -> None:
    assert ops.of(np.float32(1)) is ops.of(np.float32(2))
    assert type(ops.of({"a": {"b": X}})) is type(xp)
    with pytest.raises(TypeError, match="got list"):
        ops.of([1.0])


@pytest.mark.parametrize(
    "name, expected",
    [
        ("softplus", np.log1p(np.exp(X.astype(np.float64)))),
        ("sigmoid", special.expit(X.astype(np.float64))),
        ("gelu", X * special.ndtr(X.astype(np.float64))),
        ("silu", X * special.expit(X.astype(np.float64))),
        ("elu", np.where(X > 0, X, np.expm1(np.minimum(X, 0)))),
        ("relu", np.maximum(X, 0)),
        ("log_softmax", special.log_softmax(X.astype(np.float64), -1)),
    ],
)
def test_what_numpy_lacks(name, expected) -> None:
    got = getattr(xp, name)(X)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, expected, rtol=2e-6, atol=5e-7)


def test_large_numbers_neither_overflow_nor_warn() -> None:
    far = np.array([-1e4, 1e4], np.float32)
    np.testing.assert_array_equal(xp.softplus(far), [0, 1e4])
    np.testing.assert_array_equal(xp.sigmoid(far), [0, 1])
    np.testing.assert_array_equal(xp.log_softmax(far), [-2e4, 0])


def test_choosing_by_index() -> None:
    index = INPUTS["index"]
    np.testing.assert_array_equal(xp.take(X, index), [X[r, c] for r, c in enumerate(index)])
    np.testing.assert_array_equal(xp.one_hot(index, 6), np.eye(6)[index])
    assert xp.one_hot(index, 6).dtype == xp.cast(INPUTS["bytes"]).dtype == np.float32


@pytest.mark.parametrize("framework", ["torch", "jax", "tensorflow"])
def test_frameworks_agree_with_numpy(framework, tmp_path) -> None:
    (kind,) = run_python(
        Path(ops_cases.__file__), framework, str(tmp_path / "found.npz"), engine=framework
    )
    assert kind == {"torch": "_Torch"}.get(framework, "_Keras")
    got, expected = np.load(tmp_path / "found.npz"), ops_cases.results(lambda x: x)
    assert sorted(got) == sorted(expected)
    for name, wanted in expected.items():
        assert got[name].shape == wanted.shape and got[name].dtype.kind == wanted.dtype.kind, name
        if wanted.dtype.kind == "f":
            assert got[name].dtype == wanted.dtype == np.float32, name
        np.testing.assert_allclose(got[name], wanted, rtol=3e-6, atol=1e-6, err_msg=name)


def test_everything_on_the_list_is_tried() -> None:
    listed = (ops.__doc__ or "").split("\n\n")[1].split()
    assert set(listed) == {name.split()[0] for name in ops_cases.OPS}
