"""Bootstrap values of episodes that were truncated in the middle of a rollout."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tandem import ops
from tandem.types import Array, Trajectory, Tree, tree_map


def after_cuts(
    t: Trajectory, value: Array, bootstrap: Array, later: Callable[[Array, Tree], Array]
) -> Array:
    """Return gamma * V(true last observation) at steps where an episode was truncated, else 0.

    Args:
        t: The trajectory.
        value: Values of its observations, [T, N].
        bootstrap: Values of the observations after it, [N].
        later: Function of (at, obs) that returns the values [rows] of other observations
            [rows, ...], each following the trajectory's step `at`. In compiled runs, which have the
            observations after every step, it evaluates all of them, or none if no episode was
            truncated.

    Returns:
        Bootstrap values, [T, N].
    """
    if t.cuts.dense:
        seen = tree_map(lambda x: x.reshape(-1, *x.shape[2:]), t.cuts.obs)
        cut = t.last & (t.discount > 0)
        valued = t.cuts.dense(cut.any(), lambda: later((), seen).reshape(value.shape), 0.0 * value)
        return ops.of(value).where(cut, t.discount * valued, 0.0)
    after = np.zeros_like(value)
    cut = t.last & (t.discount > 0)
    if cut.any():
        # for steps whose last observation is obs[t + 1]
        after[:-1] = np.where(cut[:-1], t.discount[:-1] * value[1:], 0)
        after[-1] = np.where(cut[-1], t.discount[-1] * bootstrap, 0)
        if len(t.cuts.t):
            at = (t.cuts.t, t.cuts.env)
            after[at] = np.where(cut[at], t.discount[at] * later(at, t.cuts.obs), 0)
    return after
