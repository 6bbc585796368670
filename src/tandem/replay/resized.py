"""Transfer of a saved replay buffer to one of another size or with another sampler: the newest rows
and their reported terms."""

from __future__ import annotations

import numpy as np

from tandem.errors import ResumeError
from tandem.replay.array_files import fill
from tandem.replay.buffer import Ring
from tandem.replay.samplers import Sampler
from tandem.replay.scored import ScoredSampler
from tandem.types import AnyArray, JSONDict

CUT = "cut_"  # prefix of the names of arrays without a row per time step


def take_over(
    ring: Ring, sampler: Sampler, gamma: float, data: JSONDict, arrays: dict[str, AnyArray]
) -> None:
    """Fill a new ring and its sampler with the output of `learning.learners.stored` of another
    pair: the newest rows that fit, with gamma as their discount, their ids, and, if both samplers
    use priorities, the terms reported for them.

    Raises ResumeError if the number of environments, the observations or the actions differ.
    """
    meta, saved = data["ring"], _named(arrays, "ring/")
    own = ring.state()[1]
    columns = [name for name in own if not name.startswith(CUT)]
    there = {n: (x.shape[1:], x.dtype) for n, x in saved.items() if n in columns}
    needed = {n: (own[n].shape[1:], own[n].dtype) for n in columns}
    if meta["envs"] != ring.envs or there != needed:
        raise ResumeError(
            f"the saved pool has {meta['envs']} environment(s), with {there}.",
            f"{ring.envs} environment(s), with {needed}",
            "call set with the saved agent's modes (HER, MARL, IRL) and the same environments "
            "(train(processes=n) makes n of a single one); or create a new agent, and call "
            "restore_param.",
        )
    time, slots = int(meta["time"]), int(meta["slots"])
    # the slot after the newest row holds the observation after it
    low = max(0, time + 1 - min(slots, ring.slots))
    used = ring.used_slots(time)

    def move(x: AnyArray, new: AnyArray) -> AnyArray:
        """Copy the rows of these steps to their slots in a ring of the new size."""
        at = low
        while at <= time and time:  # up to where either ring wraps around
            count = min(time + 1 - at, slots - at % slots, ring.slots - at % ring.slots)
            fill(new[at % ring.slots :][:count], x[at % slots : at % slots + count])
            at += count
        return new

    kept = max(int(meta.get("kept", 0)), low + ring.history if low else 0)
    new: dict[str, AnyArray] = {}
    for name in columns:  # in place, since a copy could double the memory
        column = ring.column(name)
        new[name] = move(saved[name], column.reshape(ring.slots, ring.envs, *column.shape[1:]))
    new["discount"][new["discount"] > 0] = gamma
    new = {name: x[:used] for name, x in new.items()}
    first = int(np.searchsorted(np.asarray(saved["cut_ids"]), kept * ring.envs))
    new |= {name: x[first:] for name, x in saved.items() if name.startswith(CUT)}
    ring.load_state({**meta, "slots": ring.slots, "kept": kept}, new)
    if isinstance(sampler, ScoredSampler):
        terms = {
            name: move(
                np.asarray(x).reshape(-1, ring.envs), np.zeros((ring.slots, ring.envs), x.dtype)
            )[:used].reshape(-1)
            for name, x in _named(arrays, "sampler/term/").items()
        }
        sampler.take_over(terms, data["sampler"].get("most", {}))
    else:
        sampler.load_state({}, {})


def _named(arrays: dict[str, AnyArray], start: str) -> dict[str, AnyArray]:
    return {n.removeprefix(start): x for n, x in arrays.items() if n.startswith(start)}
