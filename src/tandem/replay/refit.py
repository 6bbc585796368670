"""What was saved of a ring and its sampler, for a ring of another length."""

from __future__ import annotations

import numpy as np

from tandem.replay.buffer import Ring
from tandem.types import AnyArray, IntArray, JSONDict, State

PER_ROW = "sampler/"  # begins the names of arrays [slots * N]; the ring's are [slots, N, ...]
CUTS = "ring/cut_"


def refitted(data: JSONDict, arrays: dict[str, AnyArray], ring: Ring) -> State:
    """The states of a ring and its sampler as `learning.learners.stored` gives them, of a ring as
    long as this one: the newest rows that both have room for. They are unchanged where the lengths
    are equal, or where there is something else that does not fit, for `load_state` to say."""
    meta = data["ring"]
    slots, time = int(meta["slots"]), int(meta["time"])
    if slots == ring.slots or meta["envs"] != ring.envs or not time:
        return data, arrays
    before = 1 + ring.history
    first = max(int(meta.get("kept", 0)), time - min(slots, ring.slots) + before)
    steps = np.arange(max(0, first - ring.history), time + 1)
    used = ring.used_slots(time)
    kept = arrays["ring/cut_ids"] >= first * ring.envs

    def moved(name: str, x: AnyArray) -> AnyArray:
        if name.startswith(CUTS):
            return x[kept]
        if name.startswith(PER_ROW):
            rows: IntArray = x.reshape(-1, ring.envs)
            return _placed(rows, steps, slots, ring.slots, used).reshape(-1)
        return _placed(x, steps, slots, ring.slots, used)

    meta = meta | {"slots": ring.slots, "kept": first}
    return data | {"ring": meta}, {
        n: moved(n, x) if n.startswith(("ring/", PER_ROW)) else x for n, x in arrays.items()
    }


def _placed(x: AnyArray, steps: IntArray, slots: int, new_slots: int, used: int) -> AnyArray:
    """Rows of time steps, in a ring of `slots`, as they lie in one of `new_slots`."""
    new = np.zeros((used, *x.shape[1:]), x.dtype)
    new[steps % new_slots] = x[steps % slots]
    return new
