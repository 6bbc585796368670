"""Memories: against torch's own, and with their state reset within a sequence."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tandem.networks.plan import Twin, init
from tandem.networks.recurrent import GRU, MEMORIES, LSTMCell, Memory, Recurrent
from tests.networks.plans import CASES

L, S, F, H = 7, 3, 4, 5
BOTH = pytest.mark.parametrize("cell", [kind(F, H) for kind in MEMORIES.values()], ids=MEMORIES)


def weights(cell: Memory, rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {n: rng.normal(size=x.shape).astype(np.float32) for n, x in cell.init(rng).items()}


@BOTH
def test_it_is_torch_s(cell: Memory) -> None:
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
    each = [cell.unroll(w, p[:, 0], h, np.zeros(len(p), np.float32), 1) for p, h in parts]
    np.testing.assert_allclose(whole, np.concatenate(each), atol=1e-6)
    assert np.abs(whole[3:] - cell.unroll(w, x[:, 0], state, 0 * start, 1)[3:]).max() > 0.01


@BOTH
def test_no_gradient_crosses_a_start(cell: Memory) -> None:
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
    whole = twin({"obs": obs.reshape(-1, F), "state": state, "start": start.reshape(-1)})
    whole = whole.reshape(L, S, -1)
    for t in range(L):
        out = twin({"obs": obs[t], "state": state, "start": start[t]})
        np.testing.assert_allclose(out, whole[t], atol=1e-6)
        state = out[:, -layer.cell.size :]
