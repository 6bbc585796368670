"""Which rows of a batch each of several devices or processes takes, where every one of them takes
gradients of its own rows and the sum is that of the batch (`keras_tensorflow_devices`).

Of N, the r-th takes every N-th group of rows from its r-th on. Where rows are steps of sequences,
time first, these are whole sequences, as N divides their number; where a step has a row for each
agent, `together` rows are a group, and agents stay side by side."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext

from tandem import ops
from tandem.types import Array, Batch, Variable, leaves, tree_map


class Devices:
    """The devices that make an update together, as far as they need nothing done."""

    divides_rows = False  # whether each takes gradients of its own rows
    together = 1  # rows of a step, one of each agent
    time_first = False  # whether rows are steps of sequences, time first
    workers, rank = 1, 0  # processes that learn together, and which of them this is
    asynchronous = False  # whether updates are made by others, each at its own time
    by_rounds = False  # whether they collect by episodes, and agree on how much they learn

    def scope(self) -> AbstractContextManager[object]:
        """In which a user's networks are trained."""
        return nullcontext()

    def watched(self) -> AbstractContextManager[object]:
        """Entered while devices work together."""
        return nullcontext()

    def check(self, variables: Iterable[Variable], optimizers: Iterable[object]) -> None:
        """Any variables will do."""


def divides(batch: Batch, devices: int, together: int = 1) -> bool:
    """Whether all arrays of a batch divide evenly."""
    each = devices * together
    return all(x.shape[0] % each == 0 for x in leaves(batch._replace(settings={})))


def shard(batch: Batch, rank: Array, devices: int, together: int = 1) -> Batch:
    """The rows of a batch that device `rank` takes."""

    def own(x: Array) -> Array:
        xp = ops.of(x)
        apart = xp.reshape(x, (-1, devices, together, *x.shape[1:]))
        return xp.reshape(apart[:, rank], (-1, *x.shape[1:]))

    return tree_map(own, batch._replace(settings={}))._replace(settings=batch.settings)


def spread(x: Array, here: Array, together: int = 1) -> Array:
    """The results of one of N devices for its rows, [rows / N] or over time [T, B / N], at their
    places among all, [rows] or [T, B], and 0 elsewhere: the sum over devices is whole. `here`
    is float [N], 1 for that device."""
    xp = ops.of(x)
    rows, mine = xp.reshape(x, (-1, 1, together)), xp.reshape(here, (1, -1, 1))
    # not a product: what is not finite stays at its places
    at = xp.where(mine > 0, rows, 0.0 * mine)
    return xp.reshape(at, (*x.shape[:-1], x.shape[-1] * here.shape[0]))
