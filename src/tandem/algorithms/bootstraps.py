"""What follows the last step of an episode that was cut, in the middle of a rollout."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tandem import ops
from tandem.types import Array, Trajectory, Tree, tree_map


def after_cuts(
    t: Trajectory, value: Array, bootstrap: Array, later: Callable[[Array, Tree], Array]
) -> Array:
    """gamma * V(true last observation) at the steps where an episode was cut, else 0; [T, N]. value
    [T, N] is what the trajectory's observations are worth, bootstrap [N] what follows them;
    `later(at, obs)` says it of others, [rows, ...] to [rows], each seen after the step of the
    trajectory that `at` names. Where a compiled run hands over what was seen after every step, it
    is asked of all, or of none where no episode was cut."""
    if t.cuts.dense:
        seen = tree_map(lambda x: x.reshape(-1, *x.shape[2:]), t.cuts.obs)
        cut = t.last & (t.discount > 0)
        valued = t.cuts.dense(cut.any(), lambda: later((), seen).reshape(value.shape), 0.0 * value)
        return ops.of(value).where(cut, t.discount * valued, 0.0)
    after = np.zeros_like(value)
    cut = t.last & (t.discount > 0)
    if cut.any():
        # where obs[t + 1] is that observation
        after[:-1] = np.where(cut[:-1], t.discount[:-1] * value[1:], 0)
        after[-1] = np.where(cut[-1], t.discount[-1] * bootstrap, 0)
        if len(t.cuts.t):
            at = (t.cuts.t, t.cuts.env)
            after[at] = np.where(cut[at], t.discount[at] * later(at, t.cuts.obs), 0)
    return after
