"""A replay buffer of whole sequences, for algorithms that learn from "sequences" (ACER): `steps`
steps of one environment each, with the observation after them. Each image of a stack is stored
once. Recurrent DQN, SAC and others that learn from "transitions" sample sequences from
`buffer.Ring` instead."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np

from tandem.errors import ResumeError
from tandem.replay.allocation import allocate
from tandem.replay.array_files import fill
from tandem.replay.priorities import Priorities
from tandem.replay.stacks import apart, blanked, stored
from tandem.spaces import Leaf, Spec
from tandem.types import Array, Batch, JSONDict, leaves

EPS = 1e-6  # gives every sequence a positive probability


class SampledSequences(NamedTuple):
    """B sequences sampled from a buffer."""

    slots: Array  # int64 [B]: their slots in the buffer
    batch: Batch  # [T + 1, B, ...]
    importance: Array  # float32 [B]


class SequenceBuffer:
    """The newest `capacity` sequences, or with evict="sample" those not yet evicted, in arrays
    [steps + 1, capacity, ...]; images of stacks of k in [steps + k, capacity, ...]. Dtypes are
    kept.

    Without `alpha`, sequences are sampled uniformly, with replacement. With `alpha`, a sequence is
    sampled with probability p ** alpha / sum p ** alpha (Schaul et al. 2016, arXiv:1511.05952,
    eq. 1), and new sequences get the largest p so far. Then evict="sample" evicts sequences with
    probabilities proportional to 1 / p ** alpha.

    columns: data stored with each step in addition to the observation: name -> (shape, dtype).
    Names that end in "_state" are recurrent states, one per sequence, [1, capacity, ...]. Raises
    MemoryBudgetError, before any allocation, if the arrays exceed the available memory.
    """

    def __init__(
        self,
        capacity: int,
        steps: int,
        obs: Spec,
        columns: dict[str, tuple[tuple[int, ...], str]],
        *,
        alpha: float | None = None,
        evict: Literal["oldest", "sample"] = "oldest",
    ) -> None:
        self.capacity, self.steps, self.alpha, self.evict = capacity, steps, alpha, evict
        self._spec = obs
        purpose = f"a replay buffer of {capacity:,} sequences of {steps} steps"
        self._columns = allocate(_arrays(capacity, steps, obs, columns), purpose)
        self._priorities = Priorities(capacity, alpha or 0.0, EPS)
        self._count = self._next = 0
        self._kept = np.zeros(capacity)  # priorities, for `take_over`
        self._writing = np.full(1, -1)  # the slot being written

    def __len__(self) -> int:
        """Return the number of sequences in the buffer."""
        return self._count

    def add(self, batch: Batch, rng: np.random.Generator) -> None:
        """Add N sequences [T + 1, N, ...]. `rng` is used only for evict="sample", once the buffer
        is full."""
        arrays = self._named(batch)
        for i in range(len(arrays["reward"][0])):
            self._writing[0] = slot = self._slot(rng)
            for name, x in self._columns.items():
                x[:, slot] = arrays[name][:, i]
            self._writing[0] = -1
            self._priorities.tree.set(np.array([slot]), np.array([self._priorities.largest]))
            self._count = min(self._count + 1, self.capacity)

    def draw(self, rng: np.random.Generator, count: int, beta: float) -> SampledSequences:
        """Sample `count` sequences with importance weights: (N P) ** -beta, divided by the largest
        of them."""
        if self.alpha is None:
            slots = rng.integers(self._count, size=count)
            importance = np.ones(count, np.float32)
        else:
            (slots,), (importance,) = self._priorities.draw(rng, 1, count, np.array([beta]))
        columns = {n: x[:, slots] for n, x in self._columns.items()}
        rest: dict[str, Any] = {
            n: columns.pop(n) for n in ("action", "reward", "discount", "weight")
        }
        obs = {k: self._stacked(columns, k, leaf) for k, leaf in _leaves(self._spec).items()}
        return SampledSequences(
            slots,
            Batch(obs if isinstance(self._spec, dict) else obs[""], **rest, extra=columns),
            importance,
        )

    def _stacked(self, columns: dict[str, Array], key: str, leaf: Leaf) -> Array:
        """Remove the columns of an observation, and return the observations [T + 1, B, ...]."""
        x = columns.pop(f"obs/{key}")
        if not leaf.stack:
            return x
        steps, age = self.steps + 1, columns.pop(f"age/{key}")
        stacks = np.stack([x[i : i + steps] for i in range(leaf.stack)], 2)
        return blanked(stacks.reshape(-1, *leaf.shape), age.ravel()).reshape(stacks.shape)

    def update(self, slots: Array, priority: Array) -> None:
        """Set new priorities [B] of the sequences in `slots` [B]; for repeated slots the last wins.
        Raise NonFiniteError if one is not finite."""
        if self.alpha is not None:
            self._priorities.set(slots, self._priorities.powers(priority))

    def _slot(self, rng: np.random.Generator) -> int:
        """Return the slot for the next sequence."""
        if self._count < self.capacity or self.alpha is None or self.evict == "oldest":
            slot, self._next = self._next, (self._next + 1) % self.capacity
            return slot
        chances = np.cumsum(1.0 / self._priorities.tree.leaves)
        return int(
            np.searchsorted(chances, rng.random() * chances[-1], side="right").clip(
                max=self.capacity - 1
            )
        )

    def _named(self, batch: Batch) -> dict[str, Array]:
        arrays = {
            "action": batch.action,
            "reward": batch.reward,
            "discount": batch.discount,
            "weight": batch.weight,
        }
        for (key, leaf), x in zip(_leaves(self._spec).items(), leaves(batch.obs), strict=True):
            new, *age = apart(x, leaf, f"obs/{key}")
            # older images of the first stack, oldest first
            older = [np.moveaxis(x[0, :, :-1], 0, 1)] if age else []
            arrays |= {
                f"obs/{key}": np.concatenate([*older, new]),
                **{f"age/{key}": a for a in age},
            }
        return arrays | batch.extra

    @property
    def arrays(self) -> dict[str, Array]:
        """All arrays of the buffer."""
        return {
            **{f"column/{n}": x for n, x in self._columns.items()},
            "kept": self._kept,
            "writing": self._writing,
        }

    def live_in(self, arrays: dict[str, Array]) -> None:
        """Use these arrays, of the same shapes and dtypes, from now on: memory that outlives this
        process, for example."""
        self._columns = {n: arrays[f"column/{n}"] for n in self._columns}
        self._kept, self._writing = arrays["kept"], arrays["writing"]

    def left(self) -> dict[str, Any]:
        """Return the JSON data that another buffer needs for `take_over`, besides the arrays."""
        self._kept[:] = self._priorities.tree.leaves
        return {"largest": self._priorities.largest, "count": self._count, "next": self._next}

    def take_over(self, left: dict[str, Any]) -> None:
        """Continue with the contents of the buffer whose `left` this is, in the same arrays. If
        that buffer was interrupted while it wrote a sequence, another sequence replaces it."""
        self._count, self._next, torn = left["count"], left["next"], int(self._writing[0])
        if 0 <= torn < self._count:
            for x in self._columns.values():
                x[:, torn] = x[:, torn - 1]
        self._writing[0] = -1
        self._priorities.load(self._kept[: self._count], left["largest"])

    def state(self) -> tuple[JSONDict, dict[str, Array]]:
        """Return (JSON data, arrays) for `load_state`; the arrays are views, valid until the next
        add."""
        used = self._count
        arrays = {f"column/{n}": x[:, :used] for n, x in self._columns.items()}
        arrays["priority"] = self._priorities.tree.leaves[:used]
        data = {
            "capacity": self.capacity,
            "steps": self.steps,
            "largest": self._priorities.largest,
            "count": used,
            "next": self._next,
        }
        return data, arrays

    def load_state(self, data: JSONDict, arrays: dict[str, Array]) -> None:
        """Restore the buffer whose `state` this was. Raise ResumeError if it had another size or
        other columns."""
        own = {f"column/{n}": x for n, x in self._columns.items()}
        used = int(data["count"])
        wanted = {n: (x[:, :used].shape, x.dtype) for n, x in own.items()}
        saved = {n: (arrays[n].shape, arrays[n].dtype) for n in own if n in arrays}
        if (data["capacity"], data["steps"]) != (self.capacity, self.steps) or saved != wanted:
            raise ResumeError(
                f"the saved replay buffer has {data['capacity']} sequences of {data['steps']} "
                f"steps, with {saved}.",
                f"{self.capacity} of {self.steps}, with {wanted}",
                "resume with the run's original settings and environment.",
            )
        for n, x in own.items():
            fill(x[:, :used], arrays[n])
        self._priorities.load(arrays["priority"], float(data["largest"]))
        self._count, self._next = used, int(data["next"])


def _arrays(
    capacity: int, steps: int, obs: Spec, columns: dict[str, tuple[tuple[int, ...], str]]
) -> dict[str, tuple[tuple[int, ...], str]]:
    """Return the arrays to allocate: name -> (shape, dtype)."""
    shapes = {
        n: ((1 if n.endswith("_state") else steps + 1, capacity, *shape), dtype)
        for n, (shape, dtype) in columns.items()
    }
    for key, leaf in _leaves(obs).items():
        picture, *age = stored(f"obs/{key}", leaf).values()
        shapes[f"obs/{key}"] = (steps + max(1, leaf.stack), capacity, *picture.shape), picture.dtype
        shapes |= {f"age/{key}": ((steps + 1, capacity), a.dtype) for a in age}
    return shapes


def _leaves(obs: Spec) -> dict[str, Leaf]:
    return obs if isinstance(obs, dict) else {"": obs}
