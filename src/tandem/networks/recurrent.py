"""Networks with a memory: a GRU or an LSTM between body and head, as one layer of a plan, so that
every framework, twin and checkpoint takes it as it takes the others.

Such a network is called with L steps of S sequences side by side, time first: {"obs": rows [L * S,
...], "state": [S, size] before the first step, "start": float32 [L * S], 1 where an episode
begins: the state before that step is zero again}. It puts out [L * S, width + size]: what its head
says, and beside it the state after each step. Acting is L = 1. A critic's has "action" too, rows of
vectors, which enter its head beside the states: so one memory judges any action.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, prod
from typing import Any, ClassVar

import numpy as np

from tandem import ops
from tandem.networks.plan import (
    Half,
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

Step = Callable[[Array, Array], Array]


@dataclass(frozen=True)
class Memory(Layer):
    """From {"x": features [L * S, inputs], "state", "start"} to the states after each step, [L * S,
    size]. The parts of its weights, one for each gate, stand side by side: kernel W [inputs, gates
    * units], recurrent U [units, gates * units]. Those are orthogonal at first, gate by gate (Saxe
    et al. 2014, arXiv:1312.6120), and biases 0."""

    inputs: int
    units: int
    gates: ClassVar[int]
    vectors: ClassVar[int] = 1  # of `units` numbers each, that a state is made of
    biases: ClassVar[tuple[int, ...]] = ()  # shape of what is there of them, but for the gates

    @property
    def size(self) -> int:
        """How many numbers a state is."""
        return self.vectors * self.units

    def init(self, rng: np.random.Generator) -> Weights:
        def kernels(rows: int) -> Array:
            each = range(self.gates)
            drawn = [draw(rng, (rows, self.units), "orthogonal", 1.0)["kernel"] for _ in each]
            return np.concatenate(drawn, -1)

        bias = np.zeros((*self.biases, self.gates * self.units), np.float32)
        return {"kernel": kernels(self.inputs), "recurrent": kernels(self.units), "bias": bias}

    def entering(self, w: Weights, x: Array) -> Array:
        """The contribution of features [rows, inputs] to the gates, [rows, gates * units]."""
        raise NotImplementedError

    def step(self, w: Weights) -> Step:
        """A function from the state before a step and what enters then to the state after it."""
        raise NotImplementedError

    def unroll(self, w: Weights, x: Array, state: Array, start: Array, sequences: Array) -> Array:
        """The states after each step, [L * S, size]. x [L * S, inputs], state [S, size], start [L *
        S], sequences S."""
        xp, step = ops.of(x), self.step(w)
        entering = xp.reshape(self.entering(w, x), (-1, sequences, self.gates * self.units))
        keep = xp.reshape(1.0 - start, (-1, sequences, 1))
        states = xp.scan(lambda h, rows: step(rows[1] * h, rows[0]), state, (entering, keep))
        return xp.reshape(states, (-1, self.size))

    def forward(self, w: Weights, x: Tree) -> Array:
        return self.unroll(w, x["x"], x["state"], x["start"], x["state"].shape[0])


class GRU(Memory):
    """Cho et al. 2014, arXiv:1406.1078v1: the reset gate acts on the recurrent product and not
    before it, as in cuDNN, torch.nn.GRU and Keras's reset_after=True:

        z, r = sigmoid(x W + b + h U + c), n = tanh(x W + b + r * (h U + c)), h' = z h + (1 - z) n,
        each with parts of its own

    in the order z, r, n; bias (b, c) [2, 3 units].
    """

    gates = 3
    biases = (2,)

    def entering(self, w: Weights, x: Array) -> Array:
        return x @ w["kernel"] + w["bias"][0]

    def step(self, w: Weights) -> Step:
        inner, inner_bias, n = w["recurrent"], w["bias"][1], self.units

        def step(h: Array, outer: Array) -> Array:
            xp, again = ops.of(h), h @ inner + inner_bias
            gates = xp.sigmoid(outer[:, : 2 * n] + again[:, : 2 * n])
            z = gates[:, :n]
            return z * h + (1.0 - z) * xp.tanh(outer[:, 2 * n :] + gates[:, n:] * again[:, 2 * n :])

        return step


class LSTMCell(Memory):
    """Hochreiter & Schmidhuber 1997, with the forget gate of Gers et al. 2000, as in torch.nn.LSTM
    and Keras:

        i, f, o = sigmoid(x W + h U + b), g = tanh(x W + h U + b),  c' = f c + i g,
        h' = o tanh(c'), each with parts of its own

    in the order i, f, g, o; bias [4 units]. A state is h and c side by side, and heads see h.
    """

    gates = 4
    vectors = 2

    def entering(self, w: Weights, x: Array) -> Array:
        return x @ w["kernel"] + w["bias"]

    def step(self, w: Weights) -> Step:
        inner, n = w["recurrent"], self.units

        def step(state: Array, outer: Array) -> Array:
            after = lstm(outer + state[:, :n] @ inner, state[:, n:], n)
            return ops.of(state).concat(after, -1)

        return step


def lstm(gates: Array, c: Array, n: int) -> list[Array]:
    """[h', c'] of an LSTM of n units, from the sums that enter its gates [B, 4 n] and c [B, n]."""
    xp = ops.of(gates)
    kept = xp.sigmoid(gates[:, : 2 * n])
    c = kept[:, n:] * c + kept[:, :n] * xp.tanh(gates[:, 2 * n : 3 * n])
    return [xp.sigmoid(gates[:, 3 * n :]) * xp.tanh(c), c]


MEMORIES: dict[str, type[Memory]] = {"gru": GRU, "lstm": LSTMCell}


def state_size(settings: Any) -> int:
    """How many numbers the state of a network's memory is, which has `settings.recurrent` units and
    is `settings.memory`; 0 without one."""
    return int(settings.recurrent * MEMORIES[settings.memory].vectors)


def state_leaf(settings: Any, *before: int) -> Leaf:
    """Such states [*before, size]: outputs within 1, and an LSTM's cells, which have no bounds."""
    units, shape = settings.recurrent, (*before, state_size(settings))
    high = ((1.0,) * units + (inf,) * (shape[-1] - units)) * prod(before)
    return Leaf("box", shape, "float32", (), tuple(-x for x in high), high)


def entering(observation: Tree, settings: Any, action: Leaf | None = None) -> Tree:
    """The inputs of a network with these settings: beside the observation a memory's state, and
    where an episode begins, and for a critic the action; without a memory, the observation."""
    if not settings.recurrent:
        return observation
    start = Leaf("box", (), "float32", (), (0.0,), (1.0,))
    judged = {} if action is None else {"action": action}
    return {"obs": observation, "state": state_leaf(settings), "start": start, **judged}


def seeing(head: Plan, memory: str) -> Plan:
    """The head on a memory's states, of which it sees the outputs; its widths are still to be
    fitted."""
    return head if MEMORIES[memory].vectors == 1 else (Half(0, False), *head)


@dataclass(frozen=True)
class Recurrent(Layer):
    """A whole network: body, memory on its `inputs` features, head on the states. Its weights are
    "body/...", "cell/..." and "head/..."."""

    body: Plan
    inputs: int
    units: int
    head: Plan
    memory: str = "gru"  # one of MEMORIES
    action: int = 0  # numbers of an action that enters the head

    @property
    def cell(self) -> Memory:
        return MEMORIES[self.memory](self.inputs, self.units)

    @property
    def seen(self) -> int:
        """How many numbers enter the head."""
        return self.units + self.action if self.action else self.cell.size

    @property
    def outputs(self) -> int:
        return width(self.head) + self.cell.size

    @property
    def frozen_names(self) -> set[str]:
        return {
            f"{k}/{n}"
            for k, plan in (("body", self.body), ("head", self.head))
            for n in frozen(plan)
        }

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
        said = forward(self.head, select(w, "head"), beside(states, x, self.units))
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
            return np.concatenate([head(beside(states, x, self.units)), states], -1)

        return run


def beside(states: Array, x: Tree, units: int) -> Array:
    """The inputs of the head: the states, or a memory's outputs beside the action, where x has
    one."""
    if "action" not in x:
        return states
    return ops.of(states).concat([states[:, :units], x["action"]], -1)
