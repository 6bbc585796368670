"""ops: NumPy's answers against SciPy's, every framework's against NumPy's; tandem.math on all."""

import importlib
import inspect
import pkgutil
from pathlib import Path

import numpy as np
import pytest
from scipy import special

from tandem import math, ops
from tests import ops_cases
from tests.helpers import COMPILED_LIGHTLY, run_python
from tests.ops_cases import INPUTS

X = INPUTS["x"]
xp = ops.of(X)


def test_functions_are_found_by_type_choose_by_index_and_do_not_overflow() -> None:
    assert ops.of(np.float32(1)) is ops.of(np.float32(2))
    assert type(ops.of({"a": {"b": X}})) is type(xp)
    with pytest.raises(TypeError, match="got list"):
        ops.of([1.0])
    far = np.array([-1e4, 1e4], np.float32)
    np.testing.assert_array_equal(xp.softplus(far), [0, 1e4])
    np.testing.assert_array_equal(xp.sigmoid(far), [0, 1])
    np.testing.assert_array_equal(xp.log_softmax(far), [-2e4, 0])
    index = INPUTS["index"]
    np.testing.assert_array_equal(xp.take(X, index), [X[r, c] for r, c in enumerate(index)])
    np.testing.assert_array_equal(xp.one_hot(index, 6), np.eye(6)[index])
    assert xp.one_hot(index, 6).dtype == xp.cast(INPUTS["bytes"]).dtype == np.float32


def test_what_numpy_lacks() -> None:
    x = X.astype(np.float64)
    for name, expected in {
        "softplus": np.log1p(np.exp(x)),
        "sigmoid": special.expit(x),
        "gelu": x * special.ndtr(x),
        "silu": x * special.expit(x),
        "elu": np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
        "relu": np.maximum(x, 0),
        "log_softmax": special.log_softmax(x, -1),
    }.items():
        got = getattr(xp, name)(X)
        assert got.dtype == np.float32, name
        np.testing.assert_allclose(got, expected, rtol=2e-6, atol=5e-7, err_msg=name)


@pytest.fixture(
    scope="module",
    params=["torch", *(pytest.param(e, marks=pytest.mark.slow) for e in ("jax", "tensorflow"))],
)
def engine(request, tmp_path_factory):
    """An engine, the kind of functions that were found for it, and their results."""
    file = tmp_path_factory.mktemp("ops") / "results.npz"
    script, env = Path(ops_cases.__file__), COMPILED_LIGHTLY
    (kind,) = run_python(script, request.param, str(file), engine=request.param, env=env)
    return request.param, kind, np.load(file)


def test_engines_agree_with_numpy(engine) -> None:
    name, kind, got = engine
    assert kind == {"jax": "_KerasJax", "tensorflow": "_KerasTensorFlow"}.get(name, "_Torch")
    expected = ops_cases.results(lambda x: x)
    assert {n for n in got if not n.startswith("gradient of ")} == set(expected)
    for name, wanted in expected.items():
        assert got[name].shape == wanted.shape and got[name].dtype.kind == wanted.dtype.kind, name
        if wanted.dtype.kind == "f":
            assert got[name].dtype == wanted.dtype == np.float32, name
        np.testing.assert_allclose(got[name], wanted, rtol=3e-6, atol=1e-6, err_msg=name)


def test_engines_have_one_gradient_at_a_kink(engine) -> None:
    for kink, (_, x, wanted) in ops_cases.KINKS.items():
        got = engine[2][f"gradient of {kink} at its kinks"]
        np.testing.assert_allclose(got, wanted, rtol=1e-6, err_msg=f"{kink} {x}")


@pytest.fixture(scope="module")
def torch_gradients():
    import torch

    return ops_cases.gradients(torch.as_tensor, "torch")


def test_compiled_gradients_are_those_of_torch(engine, torch_gradients) -> None:
    assert np.abs(torch_gradients["lambda_return by bootstrap"]).max() > 0
    for name, wanted in torch_gradients.items():
        got = engine[2][f"gradient of {name}"]
        np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-5, err_msg=name)


def test_everything_on_the_list_and_every_function_of_math_is_tried() -> None:
    listed = (ops.__doc__ or "").split("\n\n")[1].split()
    assert set(listed) == {name.split()[0] for name in ops_cases.OPS}
    public = set()
    for info in pkgutil.iter_modules(math.__path__, "tandem.math."):
        for name, x in vars(importlib.import_module(info.name)).items():
            if getattr(x, "__module__", "") != info.name or name.startswith("_"):
                continue
            if not inspect.isclass(x):
                public |= {name} if inspect.isfunction(x) else set()
            elif not inspect.isabstract(x):
                methods = inspect.getmembers(x, inspect.isfunction)
                public |= {f"{name}.{n}" for n, _ in methods if not n.startswith("_")}
    public -= {n for n in public if n.endswith(".noise")}  # drawn on the host
    assert public == {n.split()[0] for n in ops_cases.MATH} | ops_cases.HOST
