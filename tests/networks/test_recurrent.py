"""The GRU: by hand, against the frameworks' own, and with its state reset within a
sequence."""

from __future__ import annotations

import numpy as np
import pytest

from tandem.networks.plan import Twin, init
from tandem.networks.recurrent import GRU, Recurrent, unroll
from tests.helpers import run_python
from tests.networks.plans import CASES

L, S, F, H = 7, 3, 4, 5


def weights(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {n: rng.normal(size=x.shape).astype(np.float32) for n, x in GRU(F, H).init(rng).items()}


def test_one_step_by_hand() -> None:
    """z = r = 1/2, since their sums are 0; n = tanh(1 * 1 + 0.5 * (2 * 3 + 0.5)); h' = (3 + n) /
    2."""
    w = {"kernel": np.array([[0.0, 0.0, 1.0]]), "recurrent": np.array([[0.0, 0.0, 2.0]])}
    w["bias"] = np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 0.5]])
    got = unroll(w, np.ones((1, 1)), np.array([[3.0]]), np.zeros(1), 1)
    assert got.item() == pytest.approx((3 + np.tanh(1 + 0.5 * 6.5)) / 2)
    w["kernel"][0, 0] = np.log(3)  # z = 3/4 of the old state stays
    assert unroll(w, np.ones((1, 1)), np.array([[3.0]]), np.zeros(1), 1).item() == pytest.approx(
        0.75 * 3 + 0.25 * np.tanh(1 + 0.5 * 6.5)
    )


def test_it_is_torch_s() -> None:
    import torch

    rng = np.random.default_rng(0)
    w = weights(rng)
    x = rng.normal(size=(L, S, F)).astype(np.float32)
    state = rng.normal(size=(S, H)).astype(np.float32)

    def turned(a: np.ndarray) -> torch.Tensor:  # z, r, n to r, z, n, and transposed
        z, r, n = np.split(a, 3, -1)
        return torch.as_tensor(np.concatenate([r, z, n], -1).T)

    own = torch.nn.GRU(F, H)
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    own.load_state_dict(
        dict(
            zip(
                names,
                map(turned, (w["kernel"], w["recurrent"], w["bias"][0], w["bias"][1])),
                strict=True,
            )
        )
    )
    with torch.no_grad():
        expected, _ = own(torch.as_tensor(x), torch.as_tensor(state)[None])
    got = unroll(w, x.reshape(-1, F), state, np.zeros(L * S, np.float32), S)
    np.testing.assert_allclose(got.reshape(L, S, H), expected, atol=2e-6)


@pytest.mark.slow
def test_it_is_keras_s() -> None:
    code = """
        import json, sys
        import keras, numpy as np
        from tandem.networks.recurrent import GRU, unroll

        rng = np.random.default_rng(0)
        w = {n: rng.normal(size=x.shape).astype(np.float32) for n, x in GRU(4, 5).init(rng).items()}
        x, state = (
            rng.normal(size=(3, 7, 4)).astype(np.float32),
            rng.normal(size=(3, 5)).astype(np.float32),
        )
        layer = keras.layers.GRU(5, return_sequences=True, reset_after=True)
        layer.build(x.shape)
        layer.set_weights([w["kernel"], w["recurrent"], w["bias"]])
        expected = np.asarray(layer(x, initial_state=state))
        got = (
            unroll(w, x.swapaxes(0, 1).reshape(-1, 4), state, np.zeros(21, np.float32), 3)
            .reshape(7, 3, 5)
            .swapaxes(0, 1)
        )
        print(json.dumps(float(np.abs(got - expected).max())))
    """
    (gap,) = run_python(code, engine="jax")
    assert gap < 3e-6


def test_a_start_within_a_sequence_is_a_sequence_of_its_own() -> None:
    rng = np.random.default_rng(1)
    w = weights(rng)
    x = rng.normal(size=(L, 1, F)).astype(np.float32)
    state = rng.normal(size=(1, H)).astype(np.float32)
    start = np.zeros(L, np.float32)
    start[[3, 4]] = 1
    whole = unroll(w, x[:, 0], state, start, 1)
    nothing = np.zeros((1, H), np.float32)
    parts = [(x[:3], state), (x[3:4], nothing), (x[4:], nothing)]
    expected = np.concatenate(
        [unroll(w, p[:, 0], h, np.zeros(len(p), np.float32), 1) for p, h in parts]
    )
    np.testing.assert_allclose(whole, expected, atol=1e-6)
    assert (
        np.abs(whole[3:] - unroll(w, x[:, 0], state, np.zeros(L, np.float32), 1)[3:]).max() > 0.01
    )


def test_no_gradient_crosses_a_start() -> None:
    import torch

    rng = np.random.default_rng(2)
    w = {n: torch.as_tensor(v) for n, v in weights(rng).items()}
    x = torch.as_tensor(rng.normal(size=(L, F)).astype(np.float32)).requires_grad_(True)
    state = torch.ones(1, H, requires_grad=True)
    start = torch.zeros(L)
    start[3] = 1
    gx, gs = torch.autograd.grad(unroll(w, x, state, start, 1)[3:].sum(), (x, state))
    assert not gx[:3].any() and not gs.any() and (gx[3:].abs().sum(1) > 0).all()
    gx, gs = torch.autograd.grad(unroll(w, x, state, start * 0, 1)[3:].sum(), (x, state))
    assert gx[:3].any() and gs.any()


def test_each_gate_begins_orthogonal() -> None:
    first = GRU(6, 4).init(np.random.default_rng(0))
    for name in ("kernel", "recurrent"):
        for gate in np.split(first[name], 3, -1):
            np.testing.assert_allclose(gate.T @ gate, np.eye(4), atol=1e-6)
    assert not first["bias"].any() and first["bias"].shape == (2, 12)


def test_a_twin_takes_sequences_and_single_steps_alike() -> None:
    _, plan = CASES["recurrent"]
    (layer,) = plan
    assert isinstance(layer, Recurrent)
    rng = np.random.default_rng(3)
    twin = Twin(plan, init(plan, rng))
    obs = rng.normal(size=(L, S, F)).astype(np.float32)
    state = rng.normal(size=(S, 5)).astype(np.float32)
    start = (rng.random((L, S)) < 0.3).astype(np.float32)
    whole = twin({"obs": obs.reshape(-1, F), "state": state, "start": start.reshape(-1)}).reshape(
        L, S, -1
    )
    for t in range(L):
        out = twin({"obs": obs[t], "state": state, "start": start[t]})
        np.testing.assert_allclose(out, whole[t], atol=1e-6)
        state = out[:, -layer.units :]
