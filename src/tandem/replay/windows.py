"""Windows of n steps in a ring of transitions (Sutton & Barto 2018, section 7.1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from tandem.types import AnyArray, Array, BoolArray, IntArray, Tree

REWARDS = ("reward", "extra/rewards")  # columns of which n-step transitions have sums

if TYPE_CHECKING:
    from tandem.replay.buffer import Ring


def read(ring: Ring, name: str, at: IntArray) -> AnyArray:
    """What a column has at these positions, rewards as the ring scales them."""
    x: AnyArray = ring.column(name).take(at, axis=0)
    return ring.scaled(x) if ring.scaled and name in REWARDS else x


def ends(ring: Ring, row: IntArray) -> BoolArray:
    """bool [B]: whether windows end with these rows: their episodes do, or a limit took an agent of
    a team alone, whose value is that of what it saw then."""
    ended: BoolArray = ring.last.take(ring.position(row))
    if ring.limited:
        after = ring.column(f"obs/{ring.limited}").take(ring.position(row + ring.envs), axis=0)
        ended = ended | (after == 2).any(-1)
    return ended


def later(ring: Ring, row: IntArray, n: int) -> Iterator[tuple[IntArray, IntArray]]:
    """For each further step of the windows of n steps that start in rows `row` [B]: (indices of
    those windows that reach to it, the ids of their rows there). At the newest row they end too."""
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
    """Adds the later steps of n-step windows to `rewards` [B, ...], which are named as the columns
    that they are of, and to discount [B], in place. Returns the windows' last rows."""
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
    """What lies between the first observation and the last of n-step windows that start in rows
    `ids` [...]: (the observations at steps t + 1 to t + n - 1, [..., n - 1, *their own]; discount_t
    ... discount_(t+k-1) for each of these t + k, float32 [..., n - 1]). Where a window is shorter
    the discount is 0, and the observation one that is in the window."""
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
