"""Division of a batch's rows among several devices or processes that each compute gradients of
their own rows; the sum is the gradient of the batch (`keras_tensorflow_devices`).

Of N devices, device r takes every N-th group of rows, starting with group r. For time-major steps
of sequences, these are whole sequences if N divides their number. If a step has a row per agent, a
group has `together` rows, so that agents stay adjacent.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext

from tandem import ops
from tandem.types import Array, Batch, Variable, leaves, tree_map


class Devices:
    """The devices that share an update, with defaults for devices that need no special handling."""

    divides_rows = False  # whether each computes gradients of its own rows
    together = 1  # rows per step, one per agent
    time_first = False  # whether rows are time-major steps of sequences
    workers, rank = 1, 0  # number of processes that learn together, and this one's rank
    asynchronous = False  # whether other processes make updates asynchronously
    by_rounds = False  # whether workers collect by episodes, and agree on the amount of training

    def scope(self) -> AbstractContextManager[object]:
        """Return the scope in which a user's networks are trained."""
        return nullcontext()

    def watched(self) -> AbstractContextManager[object]:
        """Return a context to enter while devices work together."""
        return nullcontext()

    def check(self, variables: Iterable[Variable], optimizers: Iterable[object]) -> None:
        """Accept any variables."""


def divides(batch: Batch, devices: int, together: int = 1) -> bool:
    """True if all arrays of a batch divide evenly."""
    each = devices * together
    return all(x.shape[0] % each == 0 for x in leaves(batch._replace(settings={})))


def shard(batch: Batch, rank: Array, devices: int, together: int = 1) -> Batch:
    """Return the rows of a batch for device `rank`."""

    def own(x: Array) -> Array:
        xp = ops.of(x)
        apart = xp.reshape(x, (-1, devices, together, *x.shape[1:]))
        return xp.reshape(apart[:, rank], (-1, *x.shape[1:]))

    return tree_map(own, batch._replace(settings={}))._replace(settings=batch.settings)


def spread(x: Array, here: Array, together: int = 1) -> Array:
    """Place one of N devices' results for its rows, [rows / N] or over time [T, B / N], at their
    positions among all, [rows] or [T, B], with 0 elsewhere, so that the sum over devices is
    complete. `here` is float [N], 1 for that device."""
    xp = ops.of(x)
    rows, mine = xp.reshape(x, (-1, 1, together)), xp.reshape(here, (1, -1, 1))
    # not a product: non-finite values must stay at their positions
    at = xp.where(mine > 0, rows, 0.0 * mine)
    return xp.reshape(at, (*x.shape[:-1], x.shape[-1] * here.shape[0]))
