"""Value learning: temporal-difference errors and the losses on them."""

from __future__ import annotations

from tandem import ops
from tandem.types import Array


def q_learning(
    q: Array, action: Array, reward: Array, discount: Array, next_q: Array, selector: Array = None
) -> Array:
    """Temporal-difference error of Q-learning (Watkins & Dayan 1992); of double Q-learning (van
    Hasselt et al. 2016, arXiv:1509.06461, eq. 4) where `selector` holds the values that choose the
    next action.

    q, next_q, selector [..., A]; action int [...]; reward, discount [...]. Returns [...], target
    minus value; no gradient flows into the target.
    """
    xp = ops.of(q)
    next_action = xp.argmax(next_q if selector is None else selector, -1)
    return xp.stop_gradient(reward + discount * xp.take(next_q, next_action)) - xp.take(q, action)


def huber(x: Array, delta: float = 1.0) -> Array:
    """Quadratic within `delta` of zero, linear beyond (Huber 1964, doi:10.1214/aoms/1177703732). x
    [...]; returns [...]."""
    xp = ops.of(x)
    size = xp.abs(x)
    near = xp.clip(size, 0.0, delta)
    return 0.5 * near * near + delta * (size - near)


def clipped_value_loss(
    value: Array, old_value: Array, target: Array, clip: float, delta: float = 0.0
) -> Array:
    """Squared error whose value may not move by more than `clip` from what it was when the data was
    collected (the released code of Schulman et al. 2017, arXiv:1707.06347; Engstrom et al. 2020,
    arXiv:2005.12729, section 3); 0: freely. With `delta` errors beyond it count linearly: twice
    Huber's loss. All [...]."""

    def loss(error: Array) -> Array:
        return 2.0 * huber(error, delta) if delta else error**2

    if not clip:
        return loss(value - target)
    xp = ops.of(value)
    moved = old_value + xp.clip(value - old_value, -clip, clip)
    return xp.maximum(loss(value - target), loss(moved - target))
