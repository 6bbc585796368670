"""The losses of the value and PPO examples in NumPy, from what their networks give."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any
GAMMA = 0.98


def batch(rows: int = 9) -> dict[str, Array]:
    """s, a, next_s, r, d of CartPole's shapes; d is 1 somewhere."""
    rng = np.random.default_rng(3)
    s, next_s = rng.normal(size=(2, rows, 4)).astype(np.float32)
    a, r = rng.integers(2, size=rows), rng.normal(size=rows).astype(np.float32)
    d = (np.arange(rows) % 3 == 0).astype(np.float32)
    return {"s": s, "a": a, "next_s": next_s, "r": r, "d": d}


def q_learning(q: Array, following: Array, a: Array, r: Array, d: Array) -> Array:
    """`following` [B]: the value of the next state."""
    TD = q[np.arange(len(a)), a] - (r + GAMMA * (1 - d) * following)
    return np.mean(TD**2)


def ppo(prob: Any, old: Any, value: Any, following: Any, *more: Any) -> tuple[Any, Any]:
    """Of each sample: the actor's loss, the critic's."""
    a, r, d, clip_eps, alpha = more
    TD = r + GAMMA * (1 - d) * following[:, 0] - value[:, 0]
    taken = np.arange(len(a)), a
    ratio = prob[taken] / old[taken]
    bounded = np.where(TD > 0, np.minimum(ratio, 1 + clip_eps), np.maximum(ratio, 1 - clip_eps))
    entropy = -(prob * np.log(prob)).sum(1)
    return -bounded * TD - alpha * entropy, TD**2
