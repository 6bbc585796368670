"""Plans: as data, as NumPy twins, and as networks of every framework."""

import json
import pickle
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from tandem.errors import NetworkError, SettingError
from tandem.networks import plan as layers
from tandem.networks.defaults import cnn, has_images, mlp
from tandem.networks.plan import Cast, Conv, Dense, Dueling, Twin, forward, init, width
from tandem.networks.serial import from_json, to_json
from tandem.spaces import Leaf
from tandem.testing import fakes
from tests.helpers import run_python
from tests.networks import plans
from tests.networks.plans import CASES

ALSO = pytest.param("keras-torch", marks=pytest.mark.thorough)


def test_first_weights_are_uniform_as_torch_draws_them_or_orthogonal_and_follow_the_seed() -> None:
    plan = CASES["dict"][1]
    one, two, other = (init(plan, np.random.default_rng(s)) for s in (1, 1, 2))
    assert sorted(one) == sorted(two)
    assert all(np.array_equal(one[n], two[n]) and one[n].dtype == np.float32 for n in one)
    assert not any(np.array_equal(one[n], other[n]) for n in one if n.endswith("kernel"))
    w = Dense(100, 50).init(np.random.default_rng(0))
    assert all(0.09 < np.abs(x).max() <= 0.1 for x in w.values())
    assert abs(w["kernel"].std() - 0.1 / 3**0.5) < 1e-3
    for inputs, units in ((6, 4), (4, 6), (5, 5)):
        w = Dense(inputs, units, "linear", "orthogonal", 2.0).init(np.random.default_rng(0))
        kernel = w["kernel"] if inputs >= units else w["kernel"].T
        np.testing.assert_allclose(kernel.T @ kernel, 4 * np.eye(min(inputs, units)), atol=1e-5)
        assert not w["bias"].any()
    conv = Conv(2, 3, 4, 1, initializer="orthogonal").init(np.random.default_rng(0))["kernel"]
    assert conv.shape == (4, 4, 2, 3)
    np.testing.assert_allclose(conv.reshape(-1, 3).T @ conv.reshape(-1, 3), np.eye(3), atol=1e-5)


def test_normalize_clips_and_learns_nothing() -> None:
    layer = layers.Normalize(2, clip=3.0)
    w = {"mean": np.array([1.0, 0.0], np.float32), "variance": np.array([4.0, 1e-6], np.float32)}
    found = layer.forward(w, np.array([[2.0, 5.0]], np.float32))
    np.testing.assert_allclose(found, [[0.5, 3.0]], rtol=1e-6)
    plan = (layers.Branches({"a": (Cast(2), layer), "b": (Cast(1),)}), Dense(3, 1))
    assert layers.frozen(plan) == {"0/a/1/mean", "0/a/1/variance"}
    assert layers.LayerNorm(4).epsilon == 1e-5


@pytest.mark.parametrize("name", CASES)
def test_width_is_what_comes_out_and_a_plan_survives_json(name) -> None:
    plan = CASES[name][1]
    assert from_json(json.loads(json.dumps(to_json(plan)))) == plan
    out = forward(plan, plans.weights(name), plans.observations(name))
    assert (len(out), out.shape[-1], out.dtype) == (3, width(plan), np.float32)
    twin = Twin(plan, plans.weights(name))(plans.observations(name))
    if out.ndim == 2:
        np.testing.assert_array_equal(twin, out)
    else:  # of sequences the twin's products are of all rows at once
        np.testing.assert_allclose(twin, out, rtol=1e-5, atol=1e-5)


def test_a_twin_travels_and_takes_new_weights() -> None:
    plan, x = CASES["dict"][1], plans.observations("dict")
    twin = pickle.loads(pickle.dumps(Twin(plan, plans.weights("dict"))))
    np.testing.assert_array_equal(twin(x), forward(plan, plans.weights("dict"), x))
    fresh = init(plan, np.random.default_rng(3))
    twin.load(fresh)
    np.testing.assert_array_equal(twin(x), forward(plan, fresh, x))


def test_a_width_that_no_layer_states_is_refused() -> None:
    relu, flat = layers.Activation("relu"), layers.Flatten()
    for plan in ((), (relu,), (Cast(4), flat), (Conv(1, 2, 3, 1),)):
        with pytest.raises(NetworkError, match="cannot tell the output width"):
            width(plan)
    assert width((Dense(2, 3), layers.Scale(3))) == 6
    assert width((Dueling((Dense(2, 1),), (Dense(2, 5),)),)) == 5


def test_errors_say_what_is_wrong() -> None:
    with pytest.raises(NetworkError, match=r"an unknown layer 'Teleport'(.|\n)*Dense"):
        from_json([{"layer": "Teleport"}])
    with pytest.raises(SettingError, match=r"no activation 'swish'(.|\n)*silu"):
        mlp(fakes.VECTOR, (8,), "swish")


def test_images_have_the_nature_cnn_or_a_small_one() -> None:
    for side, last in product((1, 2, 3, 5, 7, 8, 12, 20, 35), (True, False)):
        shape = (side, side, 3) if last else (3, side, side + 5)
        image = Leaf("box", shape, "uint8")
        plan = cnn(image)
        weights = init(plan, np.random.default_rng(0))
        assert Twin(plan, weights)(np.zeros((2, *shape), np.uint8)).shape == (2, 128)
        assert sum(w.size for w in weights.values()) < 400_000
    plan = cnn(Leaf("box", (84, 84, 4), "uint8"))
    weights = init(plan, np.random.default_rng(0))
    shapes = [w.shape for n, w in weights.items() if n.endswith("kernel")]
    assert shapes == [(8, 8, 4, 32), (4, 4, 32, 64), (3, 3, 64, 64), (7 * 7 * 64, 512)]
    assert has_images(plans.DICT) and not has_images(fakes.VECTOR)


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["torch", "jax", "tensorflow", ALSO])
def test_every_framework_puts_out_what_the_twin_does(framework, tmp_path) -> None:
    given = {f"{name}: {n}": w for name in CASES for n, w in plans.weights(name).items()}
    np.savez(tmp_path / "weights.npz", **given)
    files = [str(tmp_path / name) for name in ("weights.npz", "found.npz")]
    run_python(Path(plans.__file__), framework, *files, engine=framework)
    found = np.load(tmp_path / "found.npz")
    wrong = [n for n, w in given.items() if not np.array_equal(found[n], w)]
    assert not wrong, f"written, but not read back: {wrong}"
    for name, (_, plan) in CASES.items():
        expected = Twin(plan, plans.weights(name))(plans.observations(name))
        atol, output = 1e-5 * max(1, np.abs(expected).max()), found[f"{name}: output"]
        np.testing.assert_allclose(output, expected, rtol=1e-4, atol=atol, err_msg=name)
        if name in plans.SAVED and framework not in plans.NOT_SAVED:
            saved = found[f"{name}: output of a file"]
            np.testing.assert_allclose(saved, output, rtol=1e-5, atol=1e-6)
