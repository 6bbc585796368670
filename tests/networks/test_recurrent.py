"""Memories: by hand, against the frameworks' own, and with their state reset within a sequence."""

from __future__ import annotations

import numpy as np
import pytest

from tandem.networks.plan import Twin, init
from tandem.networks.recurrent import GRU, MEMORIES, LSTMCell, Memory, Recurrent
from tests.helpers import run_python
from tests.networks.plans import CASES

L, S, F, H = 7, 3, 4, 5
BOTH = pytest.mark.parametrize("cell", [kind(F, H) for kind in MEMORIES.values()], ids=MEMORIES)


def weights(cell: Memory, rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {n: rng.normal(size=x.shape).astype(np.float32) for n, x in cell.init(rng).items()}


def test_one_step_by_hand() -> None:
    """z = r = 1/2, since their sums are 0; n = tanh(1 * 1 + 0.5 * (2 * 3 + 0.5)); h' = (3 + n) /
    2."""
    w = {"kernel": np.array([[0.0, 0.0, 1.0]]), "recurrent": np.array([[0.0, 0.0, 2.0]])}
    w["bias"] = np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 0.5]])
    one = np.ones((1, 1)), np.array([[3.0]]), np.zeros(1), 1
    got = GRU(1, 1).unroll(w, *one)
    assert got.item() == pytest.approx((3 + np.tanh(1 + 0.5 * 6.5)) / 2)
    w["kernel"][0, 0] = np.log(3)  # z = 3/4 of the old state stays
    got = GRU(1, 1).unroll(w, *one)
    assert got.item() == pytest.approx(0.75 * 3 + 0.25 * np.tanh(1 + 0.5 * 6.5))


def test_one_step_of_an_lstm_by_hand() -> None:
    """i = 3/4, f = 1/2, g = tanh(1 + 2 * 0.5), o = 1/4; c' = 4 f + i g, h' = o tanh(c')."""
    w = {"kernel": np.array([[0.0, 0.0, 1.0, 0.0]]), "recurrent": np.array([[0.0, 0.0, 2.0, 0.0]])}
    w["bias"] = np.array([np.log(3), 0.0, 0.0, -np.log(3)])
    h, c = LSTMCell(1, 1).unroll(w, np.ones((1, 1)), np.array([[0.5, 4.0]]), np.zeros(1), 1)[0]
    assert c == pytest.approx(2 + 0.75 * np.tanh(2))
    assert h == pytest.approx(0.25 * np.tanh(c))


@BOTH
def test_it_is_torch_s(cell: Memory) -> None:
    import torch

    rng = np.random.default_rng(0)
    w = weights(cell, rng)
    x = rng.normal(size=(L, S, F)).astype(np.float32)
    state = rng.normal(size=(S, cell.size)).astype(np.float32)
    first = torch.as_tensor(state)[None]

    def turned(a: np.ndarray) -> torch.Tensor:  # z, r, n to r, z, n, and transposed
        parts = np.split(a, cell.gates, -1)
        if isinstance(cell, GRU):
            parts = [parts[1], parts[0], parts[2]]
        return torch.as_tensor(np.concatenate(parts, -1).T)

    if isinstance(cell, GRU):
        own, biases, begin = torch.nn.GRU(F, H), w["bias"], first
    else:  # it adds two biases
        own, begin = torch.nn.LSTM(F, H), (first[..., :H].contiguous(), first[..., H:].contiguous())
        biases = 0.25 * w["bias"], 0.75 * w["bias"]
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    arrays = map(turned, (w["kernel"], w["recurrent"], *biases))
    own.load_state_dict(dict(zip(names, arrays, strict=True)))
    with torch.no_grad():
        expected, last = own(torch.as_tensor(x), begin)
    got = cell.unroll(w, x.reshape(-1, F), state, np.zeros(L * S, np.float32), S)
    got = got.reshape(L, S, cell.size)
    np.testing.assert_allclose(got[..., :H], expected, atol=2e-6)
    last = last if isinstance(cell, GRU) else torch.cat(last, -1)
    np.testing.assert_allclose(got[-1], last[0], atol=2e-6)


@pytest.mark.slow
def test_it_is_keras_s() -> None:
    code = """
        import json, sys
        import keras, numpy as np
        from tandem.networks.recurrent import MEMORIES

        gaps = []
        for name, layer, more in (
            ("gru", keras.layers.GRU, {"reset_after": True}),
            ("lstm", keras.layers.LSTM, {}),
        ):
            rng, cell = np.random.default_rng(0), MEMORIES[name](4, 5)
            w = {
                n: rng.normal(size=x.shape).astype(np.float32) for n, x in cell.init(rng).items()
            }
            x = rng.normal(size=(3, 7, 4)).astype(np.float32)
            state = rng.normal(size=(3, cell.size)).astype(np.float32)
            layer = layer(5, return_sequences=True, **more)
            layer.build(x.shape)
            layer.set_weights([w["kernel"], w["recurrent"], w["bias"]])
            first = list(np.split(state, cell.vectors, -1))
            expected = np.asarray(layer(x, initial_state=first if name == "lstm" else first[0]))
            flat = x.swapaxes(0, 1).reshape(-1, 4)
            got = cell.unroll(w, flat, state, np.zeros(21, np.float32), 3)
            got = got.reshape(7, 3, cell.size).swapaxes(0, 1)[..., :5]
            gaps.append(float(np.abs(got - expected).max()))
        print(json.dumps(gaps))
    """
    (gaps,) = run_python(code, engine="jax")
    assert len(gaps) == 2 and max(gaps) < 3e-6


@BOTH
def test_a_start_within_a_sequence_is_a_sequence_of_its_own(cell: Memory) -> None:
    rng = np.random.default_rng(1)
    w = weights(cell, rng)
    x = rng.normal(size=(L, 1, F)).astype(np.float32)
    state = rng.normal(size=(1, cell.size)).astype(np.float32)
    start = np.zeros(L, np.float32)
    start[[3, 4]] = 1
    whole = cell.unroll(w, x[:, 0], state, start, 1)
    nothing = np.zeros_like(state)
    parts = [(x[:3], state), (x[3:4], nothing), (x[4:], nothing)]
    expected = np.concatenate(
        [cell.unroll(w, p[:, 0], h, np.zeros(len(p), np.float32), 1) for p, h in parts]
    )
    np.testing.assert_allclose(whole, expected, atol=1e-6)
    assert np.abs(whole[3:] - cell.unroll(w, x[:, 0], state, 0 * start, 1)[3:]).max() > 0.01


@BOTH
def test_no_gradient_crosses_a_start(cell: Memory) -> None:
    import torch

    rng = np.random.default_rng(2)
    w = {n: torch.as_tensor(v) for n, v in weights(cell, rng).items()}
    x = torch.as_tensor(rng.normal(size=(L, F)).astype(np.float32)).requires_grad_(True)
    state = torch.ones(1, cell.size, requires_grad=True)
    start = torch.zeros(L)
    start[3] = 1
    gx, gs = torch.autograd.grad(cell.unroll(w, x, state, start, 1)[3:].sum(), (x, state))
    assert not gx[:3].any() and not gs.any() and (gx[3:].abs().sum(1) > 0).all()
    gx, gs = torch.autograd.grad(cell.unroll(w, x, state, start * 0, 1)[3:].sum(), (x, state))
    assert gx[:3].any() and gs.any()


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
    whole = twin({"obs": obs.reshape(-1, F), "state": state, "start": start.reshape(-1)}).reshape(
        L, S, -1
    )
    for t in range(L):
        out = twin({"obs": obs[t], "state": state, "start": start[t]})
        np.testing.assert_allclose(out, whole[t], atol=1e-6)
        state = out[:, -layer.cell.size :]
