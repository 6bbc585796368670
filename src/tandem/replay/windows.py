"""Windows of n steps in a ring of transitions (Sutton & Barto 2018, section 7.1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from tandem.types import AnyArray, Array, BoolArray, IntArray, Tree

REWARDS = ("reward", "extra/rewards")  # columns that n-step transitions sum

if TYPE_CHECKING:
    from tandem.replay.buffer import Ring


def read(ring: Ring, name: str, at: IntArray) -> AnyArray:
    """Return a column at these positions; rewards are scaled by the ring."""
    x: AnyArray = ring.column(name).take(at, axis=0)
    return ring.scaled(x) if ring.scaled and name in REWARDS else x


def ends(ring: Ring, row: IntArray) -> BoolArray:
    """Return True for rows that end a window, bool [B]: the episode ends, or one agent of a team
    was truncated alone and bootstraps from its observation there."""
    ended: BoolArray = ring.last.take(ring.position(row))
    if ring.limited:
        after = ring.column(f"obs/{ring.limited}").take(ring.position(row + ring.envs), axis=0)
        ended = ended | (after == 2).any(-1)
    return ended


def later(ring: Ring, row: IntArray, n: int) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield, for each further step of the n-step windows that start in rows `row` [B], (indices of
    the windows that include it, the ids of their rows there). Windows end at the newest row."""
    row, beyond = row.copy(), ring.newest + 1 - ring.envs  # the first id of the newest time step
    going = np.flatnonzero(~ends(ring, row) & (row < beyond))
    for _ in range(n - 1):
        row[going] += ring.envs
        there = row[going]
        yield going, there
        going = going[~ends(ring, there) & (there < beyond)]


def accumulate(
    ring: Ring, row: IntArray, rewards: dict[str, AnyArray], discount: AnyArray, n: int
) -> IntArray:
    """Accumulate the later steps of n-step windows in `rewards` [B, ...], named by their columns,
    and in discount [B], in place. Return the windows' last rows."""
    final = row.copy()
    for going, there in later(ring, row, n):
        at = ring.position(there)
        final[going] = there
        for name, total in rewards.items():
            more = read(ring, name, at)
            total[going] += discount[going].reshape(-1, *(1,) * (total.ndim - 1)) * more
        discount[going] *= ring.discount.take(at)
    return final


def between(ring: Ring, ids: IntArray, n: int) -> tuple[Tree, Array]:
    """Return the inner steps of the n-step windows that start in rows `ids` [...]: (observations at
    steps t + 1 to t + n - 1, [..., n - 1, *their own]; discount_t ... discount_(t+k-1) for each of
    these t + k, float32 [..., n - 1]). Beyond the end of a shorter window the discount is 0, and
    the observation is an arbitrary one from the window."""
    row = ids.ravel()
    rows = np.repeat(row[:, None], n - 1, 1)
    discounts = np.zeros(rows.shape, np.float32)
    discount = ring.discount.take(ring.position(row))
    for k, (going, there) in enumerate(later(ring, row, n)):
        rows[going, k:] = there[:, None]
        discounts[going, k] = discount[going]
        discount[going] *= ring.discount.take(ring.position(there))
    shape = (*ids.shape, n - 1)
    return ring.observed(rows.reshape(shape)), discounts.reshape(shape)
