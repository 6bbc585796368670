"""Networks with a memory: a GRU between body and head, as one layer of a plan, so that every
framework, twin and checkpoint takes it as it takes the others.

Such a network is called with L steps of S sequences side by side, time first: {"obs": rows [L * S,
...], "state": [S, units] before the first step, "start": float32 [L * S], 1 where an episode
begins: the state before that step is zero again}. It puts out [L * S, width + units]: what its head
says, and beside it the state after each step. Acting is L = 1. A critic's has "action" too, rows of
vectors, which enter its head beside the states: so one memory judges any action.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tandem import ops
from tandem.networks.plan import (
    Layer,
    Plan,
    Twin,
    Weights,
    draw,
    forward,
    frozen,
    init,
    select,
    width,
)
from tandem.spaces import Leaf
from tandem.types import Array, Tree


def entering(observation: Tree, units: int, action: Leaf | None = None) -> dict[str, Any]:
    """What enters a network with a memory of `units` numbers; a critic's sees an action too."""
    state = Leaf("box", (units,), "float32", (), (-1.0,) * units, (1.0,) * units)
    return {
        "obs": observation,
        "state": state,
        "start": Leaf("box", (), "float32", (), (0.0,), (1.0,)),
    } | ({} if action is None else {"action": action})


def unroll(w: Weights, x: Array, state: Array, start: Array, sequences: Any) -> Array:
    """The states of a GRU after each step, [L * S, units] (Cho et al. 2014, arXiv:1406.1078v1: the
    reset gate acts on the recurrent product and not before it, as in cuDNN, torch.nn.GRU and
    Keras's reset_after=True):

        z, r = sigmoid(x W + b + h U + c), n = tanh(x W + b + r * (h U + c)), h' = z h + (1 - z) n,
        each with parts of its own

    w: kernel W [inputs, 3 units], recurrent U [units, 3 units], bias (b, c) [2, 3 units], with the
    parts z, r, n side by side. x [L * S, inputs], state h [S, units], start [L * S], sequences S.
    """
    xp, n = ops.of(x), w["recurrent"].shape[0]
    inner, inner_bias = w["recurrent"], w["bias"][1]

    def step(h: Array, rows: tuple[Array, ...]) -> Array:
        outer, keep = rows
        h = keep * h
        again = h @ inner + inner_bias
        gates = xp.sigmoid(outer[:, : 2 * n] + again[:, : 2 * n])
        z = gates[:, :n]
        return z * h + (1.0 - z) * xp.tanh(outer[:, 2 * n :] + gates[:, n:] * again[:, 2 * n :])

    outer = xp.reshape(x @ w["kernel"] + w["bias"][0], (-1, sequences, 3 * n))
    states = xp.scan(step, state, (outer, xp.reshape(1.0 - start, (-1, sequences, 1))))
    return xp.reshape(states, (-1, n))


@dataclass(frozen=True)
class GRU(Layer):
    """From {"x", "state", "start"} to the states after each step, see `unroll`. Each gate's kernels
    are orthogonal at first (Saxe et al. 2014, arXiv:1312.6120), biases 0."""

    inputs: int
    units: int

    def init(self, rng: np.random.Generator) -> Weights:
        def gates(rows: int) -> Array:
            return np.concatenate(
                [draw(rng, (rows, self.units), "orthogonal", 1.0)["kernel"] for _ in range(3)], -1
            )

        bias = np.zeros((2, 3 * self.units), np.float32)
        return {"kernel": gates(self.inputs), "recurrent": gates(self.units), "bias": bias}

    def forward(self, w: Weights, x: Tree) -> Array:
        return unroll(w, x["x"], x["state"], x["start"], x["state"].shape[0])


@dataclass(frozen=True)
class Recurrent(Layer):
    """A whole network: body, GRU on its `inputs` features, head. Its weights are "body/...",
    "cell/..." and "head/..."."""

    body: Plan
    inputs: int
    units: int
    head: Plan
    action: int = 0  # numbers of an action that enters the head

    @property
    def cell(self) -> GRU:
        return GRU(self.inputs, self.units)

    @property
    def outputs(self) -> int:
        return width(self.head) + self.units

    @property
    def frozen_names(self) -> set[str]:
        return {f"{k}/{n}" for k in ("body", "head") for n in frozen(getattr(self, k))}

    def init(self, rng: np.random.Generator) -> Weights:
        parts = (
            ("body", init(self.body, rng)),
            ("cell", self.cell.init(rng)),
            ("head", init(self.head, rng)),
        )
        return {f"{k}/{n}": v for k, part in parts for n, v in part.items()}

    def forward(self, w: Weights, x: Tree) -> Array:
        features = forward(self.body, select(w, "body"), x["obs"])
        states = self.cell.forward(select(w, "cell"), {**x, "x": features})
        said = forward(self.head, select(w, "head"), beside(states, x))
        return ops.of(states).concat([said, states], -1)

    def bound(self, w: Weights) -> Callable[[Tree], Array]:
        body = Twin(self.body, select(w, "body"))
        head = Twin(self.head, select(w, "head"))
        cell = self.cell
        own = select(w, "cell")

        def run(x: Tree) -> Array:
            states = cell.forward(
                own, {"x": body(x["obs"]), "state": x["state"], "start": x["start"]}
            )
            return np.concatenate([head(beside(states, x)), states], -1)

        return run


def beside(states: Array, x: Tree) -> Array:
    """What the head sees of x: the states, and the action where there is one."""
    return ops.of(states).concat([states, x["action"]], -1) if "action" in x else states
