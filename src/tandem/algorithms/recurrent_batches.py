"""Recurrent networks (networks/recurrent.py) over the rows of rollouts, and conversion of rollouts
to sequences (`on_policy.py`, `pqn.py`, `on_sequences.py`) and of sequences to the steps of a batch.
Replayed sequences are in `recurrent_replay.py` and `ReplayLearner._batch`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from tandem import ops
from tandem.types import Array, Batch, Trajectory, Tree, tree_map

if TYPE_CHECKING:
    from tandem.algorithms.base import Forward, Network


def starts(t: Trajectory) -> Array:
    """Return float32 [T, N], 1 where an episode starts within the rollout: after a `last` row. If
    the environment resets itself on the next step, the episode starts after the row that only
    reset. That row holds the true last observation of the previous episode and keeps its recurrent
    state, so that its value is the value of that observation."""
    last, valid = bounds(t)
    start = np.zeros(last.shape, np.float32)
    start[1:] = (last[:-1] | ~valid[:-1]) & valid[1:]
    return start


def bounds(t: Trajectory) -> tuple[Array, Array]:
    """Return (last, valid) [T, N], which determine when the acting policy's recurrent state was
    reset. For an agent's column they are those of its team, since the team's environment does not
    reset when single agents join or leave."""
    return t.extra.get("team_last", t.last), t.extra.get("team_valid", t.valid)


def follow(
    network: Forward, obs: Tree, state: Array, start: Array, **beside: Array
) -> tuple[Array, Array]:
    """Return the network's output for rows obs [T * N, ...], and its recurrent state after each of
    them, [T, N, size]. beside: a critic's "action"."""
    out = network({"obs": obs, "state": state, "start": start.reshape(-1), **beside})
    size = state.shape[-1]
    return out[:, :-size], out[:, -size:].reshape(*start.shape, size)


def later(network: Forward, obs: Tree, state: Array) -> Array:
    """Return the output for single observations [B, ...], each from its own state [B, size]."""
    out: Array = network({"obs": obs, "state": state, "start": np.zeros(len(state), np.float32)})
    return out[:, : -state.shape[-1]]


def trajectory_outputs(
    network: Forward, t: Trajectory, obs: Tree
) -> tuple[Array, Callable[[Array, Tree], Array], Tree]:
    """Return three parts: the acting network's output for the rows obs [T * N, ...] of a
    trajectory; a function of (at, observations) that returns its output for other observations,
    each following the trajectory's step `at`; and its recurrent states after each step
    [T, N, size], () for feed-forward networks."""
    if isinstance(t.state, tuple):
        return network(obs), lambda at, seen: network(seen), ()
    out, after = follow(network, obs, t.state, starts(t))
    return out, lambda at, seen: later(network, seen, after[at]), after


def advance(network: Forward, obs: Tree, state: Tree) -> tuple[Array, Tree]:
    """Return the acting network's output for observations [N, ...], and its recurrent state
    [N, size] after them; () for feed-forward networks."""
    if isinstance(state, tuple):
        return network(obs), state
    out, after = follow(network, obs, state, np.zeros((1, len(state)), np.float32))
    return out, after[0]


def output(network: Network, obs: Tree, b: Batch, role: str) -> Array:
    """Return the network's output for the observations of a batch of `steps`, from a role's
    recurrent states before its sequences."""
    state = b.extra[f"{role}_state"]
    out: Array = network({"obs": obs, "state": state, "start": b.extra["start"]})
    return out[:, : -state.shape[-1]]


def ending(t: Trajectory, after: Array) -> Array:
    """Return the recurrent state [N, size] before the next rollout."""
    last, valid = bounds(t)
    return np.where((last | ~valid)[-1][:, None], np.float32(0), after[-1])


def before(first: Array, after: Array, length: int) -> Array:
    """Return the recurrent states [S, size] before sequences of `length` steps, from the first
    state [N, size] and the states after each step. At the first step of an episode the network
    resets the state, so its value there does not matter."""
    return np.concatenate([first[None], after[length - 1 : -1 : length]]).reshape(
        -1, first.shape[-1]
    )


def sequences(rows: Batch, shape: tuple[int, int], length: int, states: dict[str, Array]) -> Batch:
    """Reshape the rows [T * N, ...] of a rollout of shape (T, N) to sequences [S, length, ...], and
    add the recurrent states before them."""

    def cut(x: Array) -> Array:
        x = x.reshape(-1, length, shape[1], *x.shape[1:])
        return np.ascontiguousarray(np.moveaxis(x, 2, 1)).reshape(-1, length, *x.shape[3:])

    obs, action, weight, extra = tree_map(cut, (rows.obs, rows.action, rows.weight, rows.extra))
    return rows._replace(obs=obs, action=action, weight=weight, extra={**extra, **states})


def steps(b: Batch, burn_in: int = 0) -> Batch:
    """Reshape a batch of sequences [S, burn_in + L, ...] to steps [L * S, ...], time first. The
    recurrent states before the sequences do not change. The observations, actions and episode
    starts of the first `burn_in` steps become `extra["burn_in"]`. Noise covers only the other
    steps, [S, L, ...]."""

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
