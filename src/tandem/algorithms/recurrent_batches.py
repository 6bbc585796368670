"""How rollouts become sequences for networks with a memory (see networks/recurrent.py), and
sequences the steps of a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from tandem import ops
from tandem.types import Array, Batch, Trajectory, Tree, tree_map

if TYPE_CHECKING:
    from tandem.algorithms.base import Forward, Network


def starts(t: Trajectory) -> Array:
    """float32 [T, N], 1 where an episode begins within the rollout: after a `last` row. Where the
    environment resets itself on the next step, it begins after the row that only reset; that one,
    which opens with the last episode's true last observation, keeps the last episode's state, so
    that its value is that observation's."""
    last, valid = bounds(t)
    start = np.zeros(last.shape, np.float32)
    start[1:] = (last[:-1] | ~valid[:-1]) & valid[1:]
    return start


def bounds(t: Trajectory) -> tuple[Array, Array]:
    """(last, valid) [T, N] by which whoever acted began anew: of an agent's column those of its
    team, whose environment knows nothing of who came and went."""
    return t.extra.get("team_last", t.last), t.extra.get("team_valid", t.valid)


def follow(
    network: Forward, obs: Tree, state: Array, start: Array, **beside: Array
) -> tuple[Array, Array]:
    """What a network puts out for rows obs [T * N, ...], and its state after each of them, [T, N,
    size]. beside: a critic's "action"."""
    out = network({"obs": obs, "state": state, "start": start.reshape(-1), **beside})
    size = state.shape[-1]
    return out[:, :-size], out[:, -size:].reshape(*start.shape, size)


def later(network: Forward, obs: Tree, state: Array) -> Array:
    """What it puts out for single observations [B, ...], each after its own state [B, size]."""
    out: Array = network({"obs": obs, "state": state, "start": np.zeros(len(state), np.float32)})
    return out[:, : -state.shape[-1]]


def trajectory_outputs(
    network: Forward, t: Trajectory, obs: Tree
) -> tuple[Array, Callable[[Array, Tree], Array], Tree]:
    """What whoever acted puts out for the rows obs [T * N, ...] of a trajectory; what it puts out
    for other observations, each seen after the step of the trajectory that `at` names: a function
    of (at, observations); and its states after each step [T, N, size], () without a memory."""
    if isinstance(t.state, tuple):
        return network(obs), lambda at, seen: network(seen), ()
    out, after = follow(network, obs, t.state, starts(t))
    return out, lambda at, seen: later(network, seen, after[at]), after


def advance(network: Forward, obs: Tree, state: Tree) -> tuple[Array, Tree]:
    """What a network that acts puts out for observations [N, ...], and its state [N, size] after
    them; () without a memory."""
    if isinstance(state, tuple):
        return network(obs), state
    out, after = follow(network, obs, state, np.zeros((1, len(state)), np.float32))
    return out, after[0]


def output(network: Network, obs: Tree, b: Batch, role: str) -> Array:
    """What a network says of the observations of a batch of `steps`, from the states of a role
    before its sequences."""
    state = b.extra[f"{role}_state"]
    out: Array = network({"obs": obs, "state": state, "start": b.extra["start"]})
    return out[:, : -state.shape[-1]]


def ending(t: Trajectory, after: Array) -> Array:
    """The state [N, size] before the next rollout."""
    last, valid = bounds(t)
    return np.where((last | ~valid)[-1][:, None], np.float32(0), after[-1])


def before(first: Array, after: Array, length: int) -> Array:
    """The states [S, size] before the sequences of `length` steps, from the first one [N, size]
    and those after each step. At an episode's first step its start stands for the state, whatever
    that is."""
    return np.concatenate([first[None], after[length - 1 : -1 : length]]).reshape(
        -1, first.shape[-1]
    )


def sequences(rows: Batch, shape: tuple[int, int], length: int, states: dict[str, Array]) -> Batch:
    """Rows [T * N, ...] of a rollout of shape (T, N) as sequences [S, length, ...], with the states
    before them."""

    def cut(x: Array) -> Array:
        x = x.reshape(-1, length, shape[1], *x.shape[1:])
        return np.ascontiguousarray(np.moveaxis(x, 2, 1)).reshape(-1, length, *x.shape[3:])

    obs, action, weight, extra = tree_map(cut, (rows.obs, rows.action, rows.weight, rows.extra))
    return rows._replace(obs=obs, action=action, weight=weight, extra={**extra, **states})


def steps(b: Batch, burn_in: int = 0) -> Batch:
    """A batch of sequences [S, burn_in + L, ...] as steps [L * S, ...], time first; the states
    before the sequences stay as they are, and what the first `burn_in` steps saw, did and where
    they started is "burn_in" in `extra`. Noise is of the other steps, [S, L, ...]."""

    def flat(x: Array) -> Array:
        xp = ops.of(x)
        x = xp.swapaxes(x, 0, 1)
        return xp.reshape(x, (-1, *x.shape[2:]))

    states = {n: x for n, x in b.extra.items() if n.endswith("_state")}
    rows = {n: x for n, x in b.extra.items() if n not in states}
    whole = (*b[:6], rows)
    obs, action, reward, discount, next_obs, weight, extra = tree_map(
        lambda x: flat(x[:, burn_in:]), whole
    )
    if burn_in:
        before = {"obs": b.obs, "action": b.action, "start": b.extra["start"]}
        extra["burn_in"] = tree_map(lambda x: flat(x[:, :burn_in]), before)
    noise = tree_map(flat, b.noise)
    extra = {**extra, **states}
    return Batch(obs, action, reward, discount, next_obs, weight, noise, extra, b.settings)
