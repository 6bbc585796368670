"""From a saved pool to one of another size, or another kind: the newest rows, and what is known of
them."""

from __future__ import annotations

import numpy as np

from tandem.errors import ResumeError
from tandem.replay.buffer import Ring
from tandem.replay.samplers import Sampler
from tandem.replay.scored import ScoredSampler
from tandem.types import AnyArray, JSONDict

CUT = "cut_"  # begins the names of arrays that have no row for each time step


def take_over(
    ring: Ring, sampler: Sampler, gamma: float, data: JSONDict, arrays: dict[str, AnyArray]
) -> None:
    """Gives a fresh ring and its sampler what `learning.learners.stored` gave of another pair: the
    newest rows that fit, with gamma as their discount, their ids, and, where both draw by priority,
    the terms that were reported of them.

    Raises ResumeError where the rows are of other environments, observations or actions.
    """
    meta, saved = data["ring"], _named(arrays, "ring/")
    own = ring.state()[1]
    columns = [name for name in own if not name.startswith(CUT)]
    there = {n: (x.shape[1:], x.dtype) for n, x in saved.items() if n in columns}
    needed = {n: (own[n].shape[1:], own[n].dtype) for n in columns}
    if meta["envs"] != ring.envs or there != needed:
        raise ResumeError(
            f"the saved pool is of {meta['envs']} environment(s), with {there}.",
            f"{ring.envs} environment(s), with {needed}",
            "call set with the modes (HER, MARL, IRL) that the agent was saved with, for the same "
            "environments (train(processes=n) makes n of a single one); or make the agent anew, "
            "and restore_param.",
        )
    time, slots = int(meta["time"]), int(meta["slots"])
    # the slot after the newest row holds what followed it
    low = max(0, time + 1 - min(slots, ring.slots))
    steps = np.arange(low, time + 1) if time else np.arange(0)
    used = ring.used_slots(time)

    def moved(x: AnyArray) -> AnyArray:
        new = np.zeros((used, *x.shape[1:]), x.dtype)
        new[steps % ring.slots] = x[steps % slots]
        return new

    kept = max(int(meta.get("kept", 0)), low + ring.history if low else 0)
    new = {name: moved(saved[name]) for name in columns}
    new["discount"] = np.where(new["discount"] > 0, np.float32(gamma), np.float32(0))
    cuts = saved["cut_ids"] >= kept * ring.envs
    new |= {name: x[cuts] for name, x in saved.items() if name.startswith(CUT)}
    ring.load_state({**meta, "slots": ring.slots, "kept": kept}, new)
    if isinstance(sampler, ScoredSampler):
        terms = {
            name: moved(x.reshape(-1, ring.envs)).reshape(-1)
            for name, x in _named(arrays, "sampler/term/").items()
        }
        sampler.take_over(terms, data["sampler"].get("most", {}))
    else:
        sampler.load_state({}, {})


def _named(arrays: dict[str, AnyArray], start: str) -> dict[str, AnyArray]:
    return {n.removeprefix(start): x for n, x in arrays.items() if n.startswith(start)}
