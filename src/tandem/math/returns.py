"""Returns and advantages over trajectories [T, N]. These run once a rollout, on the host, over NumPy arrays."""

from __future__ import annotations

import numpy as np

from tandem.types import Array


def generalized_advantage(reward: Array, discount: Array, last: Array, value: Array, bootstrap: Array, trace: float) -> Array:
    """Generalised advantage estimation (Schulman et al. 2016, arXiv:1506.02438, eq. 16).

    reward, discount, value [T, N]; last bool [T, N], after which neither traces nor values reach over (a cut step's
    own bootstrap is in its reward already); bootstrap [N], the value after the last step; trace is lambda. Returns [T, N].
    """
    reach = np.where(last, np.float32(0), discount)
    following = np.concatenate([value[1:], bootstrap[None]])
    delta = reward + reach * following - value
    decay = reach * np.float32(trace)
    advantage = np.empty_like(delta)
    running = np.zeros_like(bootstrap)
    for t in range(len(delta) - 1, -1, -1):
        running = delta[t] + decay[t] * running
        advantage[t] = running
    return advantage
