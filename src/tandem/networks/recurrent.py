"""Recurrent networks: a GRU or an LSTM between feature extractor and head, as one layer of a plan,
so that every framework, twin and checkpoint treats it like the others.

Inputs are L steps of S sequences, time-major: {"obs": rows [L * S, ...], "state": [S, size] before
the first step, "start": float32 [L * S], 1 where an episode starts, which resets the state before
that step to zero}. Outputs are [L * S, width + size]: the head's output, followed by the state
after each step. Acting uses L = 1. A critic's inputs also have "action", rows of vectors, which
enter its head with the states, so that one recurrent state can evaluate any action.
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
    """A recurrent layer from {"x": features [L * S, inputs], "state", "start"} to the states after
    each step, [L * S, size]. The weights of the gates are concatenated: kernel W [inputs, gates *
    units], recurrent U [units, gates * units]. Both are initialized orthogonally, gate by gate
    (Saxe et al. 2014, arXiv:1312.6120), and biases with 0."""

    inputs: int
    units: int
    gates: ClassVar[int]
    vectors: ClassVar[int] = 1  # number of vectors of `units` numbers in a state
    biases: ClassVar[tuple[int, ...]] = ()  # shape of the biases, except the gates' axis

    @property
    def size(self) -> int:
        """Number of values in a state."""
        return self.vectors * self.units

    def init(self, rng: np.random.Generator) -> Weights:
        def kernels(rows: int) -> Array:
            each = range(self.gates)
            drawn = [draw(rng, (rows, self.units), "orthogonal", 1.0)["kernel"] for _ in each]
            return np.concatenate(drawn, -1)

        bias = np.zeros((*self.biases, self.gates * self.units), np.float32)
        return {"kernel": kernels(self.inputs), "recurrent": kernels(self.units), "bias": bias}

    def entering(self, w: Weights, x: Array) -> Array:
        """Return the contribution of features [rows, inputs] to the gates, [rows, gates *
        units]."""
        raise NotImplementedError

    def step(self, w: Weights) -> Step:
        """Return a function from the state before a step and that contribution to the state after
        it."""
        raise NotImplementedError

    def unroll(self, w: Weights, x: Array, state: Array, start: Array, sequences: Array) -> Array:
        """Return the states after each step, [L * S, size]. x [L * S, inputs], state [S, size],
        start [L * S], sequences S."""
        xp, step = ops.of(x), self.step(w)
        entering = xp.reshape(self.entering(w, x), (-1, sequences, self.gates * self.units))
        keep = xp.reshape(1.0 - start, (-1, sequences, 1))
        states = xp.scan(lambda h, rows: step(rows[1] * h, rows[0]), state, (entering, keep))
        return xp.reshape(states, (-1, self.size))

    def forward(self, w: Weights, x: Tree) -> Array:
        return self.unroll(w, x["x"], x["state"], x["start"], x["state"].shape[0])


class GRU(Memory):
    """A gated recurrent unit (Cho et al. 2014, arXiv:1406.1078v1). The reset gate is applied after
    the recurrent product, as in cuDNN, torch.nn.GRU and Keras's reset_after=True:

        z, r = sigmoid(x W + b + h U + c), n = tanh(x W + b + r * (h U + c)), h' = z h + (1 - z) n,
        where each gate has its own part of W, U, b and c,

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
    """A long short-term memory (Hochreiter & Schmidhuber 1997) with the forget gate of Gers et al.
    2000, as in torch.nn.LSTM and Keras:

        i, f, o = sigmoid(x W + h U + b), g = tanh(x W + h U + b),  c' = f c + i g,
        h' = o tanh(c'), where each gate has its own part of W, U and b,

    in the order i, f, g, o; bias [4 units]. A state is h and c concatenated; heads receive h.
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
    """Return [h', c'] of an LSTM of n units, from the inputs of its gates [B, 4 n] and c [B, n]."""
    xp = ops.of(gates)
    kept = xp.sigmoid(gates[:, : 2 * n])
    c = kept[:, n:] * c + kept[:, :n] * xp.tanh(gates[:, 2 * n : 3 * n])
    return [xp.sigmoid(gates[:, 3 * n :]) * xp.tanh(c), c]


MEMORIES: dict[str, type[Memory]] = {"gru": GRU, "lstm": LSTMCell}


def state_size(settings: Any) -> int:
    """Return the number of values in the recurrent state, for `settings.recurrent` units of type
    `settings.memory`; 0 without a recurrent layer."""
    return int(settings.recurrent * MEMORIES[settings.memory].vectors)


def state_leaf(settings: Any, *before: int) -> Leaf:
    """Return the Leaf of such states [*before, size]: outputs within [-1, 1], and an LSTM's
    unbounded cell states."""
    units, shape = settings.recurrent, (*before, state_size(settings))
    high = ((1.0,) * units + (inf,) * (shape[-1] - units)) * prod(before)
    return Leaf("box", shape, "float32", (), tuple(-x for x in high), high)


def entering(observation: Tree, settings: Any, action: Leaf | None = None) -> Tree:
    """Return the inputs of a network with these settings: the observation alone, or for a recurrent
    network also the state, episode starts, and for a critic the action."""
    if not settings.recurrent:
        return observation
    start = Leaf("box", (), "float32", (), (0.0,), (1.0,))
    taken = {} if action is None else {"action": action}
    return {"obs": observation, "state": state_leaf(settings), "start": start, **taken}


def seeing(head: Plan, memory: str) -> Plan:
    """Return the head for a recurrent layer's states, of which it receives the outputs; its widths
    are still to be fitted."""
    return head if MEMORIES[memory].vectors == 1 else (Half(0, False), *head)


@dataclass(frozen=True)
class Recurrent(Layer):
    """A complete network: feature extractor, recurrent layer on its `inputs` features, head on the
    states. Its weights are "body/...", "cell/..." and "head/..."."""

    body: Plan
    inputs: int
    units: int
    head: Plan
    memory: str = "gru"  # one of MEMORIES
    action: int = 0  # size of an action that is an input of the head

    @property
    def cell(self) -> Memory:
        return MEMORIES[self.memory](self.inputs, self.units)

    @property
    def seen(self) -> int:
        """Number of inputs of the head."""
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
    """Return the inputs of the head: the states, or the recurrent outputs with the action if x has
    one."""
    if "action" not in x:
        return states
    return ops.of(states).concat([states[:, :units], x["action"]], -1)
