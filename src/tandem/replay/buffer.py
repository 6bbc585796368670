"""The replay buffer: a ring of preallocated arrays over [time, environment]."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import numpy as np

from tandem.errors import EnvironmentFault, ResumeError, SettingError
from tandem.replay import stacks, windows
from tandem.replay.allocation import allocate
from tandem.replay.array_files import fill
from tandem.replay.cuts import CutStore
from tandem.replay.floors import Floors, valid_rows
from tandem.replay.layout import ROW, Layout, check_column
from tandem.spaces import Leaf, Spec
from tandem.types import (
    AnyArray,
    Batch,
    BoolArray,
    Cuts,
    IntArray,
    JSONDict,
    State,
    Trajectory,
    Tree,
)

SPAN = 2**40  # more time steps than any ring receives
NO_EXTRA: Mapping[str, Leaf] = MappingProxyType({})


class Ring:
    """A ring buffer of the newest transitions of N environments, in arrays [slots, N, ...].

    A row is one step of one environment. Its id, t * N + environment, never changes; t counts all
    time steps ever written. Each observation is stored once: the next observation of row t is the
    observation of row t + 1, and the slot after the newest row holds the observations from which
    the next rows will start. If an episode was truncated and its environment reset in the same
    step, the true last observation is stored separately (`CutStore`); with `terminal`, also if it
    terminated. If observations are declared as stacks of images (`Leaf.stack`), each image is
    stored once; slots before the oldest row hold the earlier images of its stack.

    Args:
        capacity: Transitions to keep, rounded up to whole time steps.
        envs: Number of environments N.
        obs: Space of a single observation. Dtypes are kept, so uint8 images stay uint8.
        action: Space of a single action.
        path: Folder for memory-mapped files, used by this ring only (existing files in it are
            replaced). Without it, the arrays are in memory.
        extra: Entries of a trajectory's `extra` to store with each row. "rewards" are summed over n
            steps, like the reward.
        limited: The entry of a team's observations that is 2 for an agent that was truncated alone.
        terminal: Whether observations after a termination are read: by hindsight, or by losses that
            do not multiply them by the discount of 0.

    Raises:
        MemoryBudgetError: Before any allocation, if `size` exceeds the available memory or disk
            space.
    """

    def __init__(
        self,
        capacity: int,
        envs: int,
        obs: Spec,
        action: Leaf,
        *,
        path: str | None = None,
        extra: Mapping[str, Leaf] = NO_EXTRA,
        limited: str = "",
        terminal: bool = False,
    ) -> None:
        self.limited = limited
        self.terminal_from = 0 if terminal else SPAN  # first time step with terminal observations
        self.scaled: Callable[[AnyArray], AnyArray] | None = None  # applied to rewards on reading
        self._layout = layout = Layout(capacity, envs, obs, action, extra)
        self.capacity, self.envs, self.slots = capacity, envs, layout.slots
        self.nbytes = layout.nbytes  # size of the arrays in bytes
        self.history = layout.history  # earlier time steps that are part of a row's observation
        files: list[Path] = []
        if path is not None:
            Path(path).mkdir(parents=True, exist_ok=True)
            files = layout.files(Path(path))
        purpose = f"a replay buffer of {capacity:,} transitions from {envs} environment(s)"
        self._columns = allocate(layout.columns, purpose, capacity, files)
        self._flat = {
            name: x.reshape(self.slots * envs, *x.shape[2:]) for name, x in self._columns.items()
        }
        # per row, [slots * N], indexed by `position(ids)`: whether it ended its episode, whether it
        # can be sampled, and gamma, or 0 where the episode terminated
        self.last, self.valid, self.discount = (
            self._flat[name] for name in ("last", "valid", "discount")
        )
        self._extra = [f"extra/{name}" for name in extra]
        self._cuts = CutStore(list(layout.obs.values()))
        self.time = 0  # time steps ever written: t of the next one
        self._forgotten = 0  # time steps before this one were dropped by `forget`
        # the same per environment, where `forget_rows` dropped more; their rows that are still in
        # the arrays are no longer valid
        self._floors = Floors(envs)
        self._drawable = 0  # valid rows in the ring

    @staticmethod
    def size(
        capacity: int,
        envs: int,
        obs: Spec,
        action: Leaf,
        extra: Mapping[str, Leaf] = NO_EXTRA,
    ) -> int:
        """Return the bytes of such a ring's arrays. Each truncated episode whose environment reset
        in the same step adds one observation."""
        return Layout(capacity, envs, obs, action, extra).nbytes

    def __len__(self) -> int:
        """Return the number of valid rows in the ring, which can be sampled."""
        return self._drawable

    @property
    def oldest(self) -> int:
        """The smallest id in the ring, over all environments; `forget_rows` may have dropped more
        rows of some."""
        return self._first(self.time) * self.envs

    @property
    def floors(self) -> IntArray:
        """The first time step in the ring for each environment; int64 [N]."""
        return np.maximum(self._floors.steps, self._first(self.time))

    @property
    def newest(self) -> int:
        """The largest id in the ring, which contains every id from `oldest` on. One less than
        `oldest` in an empty ring."""
        return self.time * self.envs - 1

    def column(self, name: str) -> AnyArray:
        """Return a column [slots * N, ...], indexed by `position(ids)`: see `Layout`."""
        return self._flat[name]

    def contains(self, ids: IntArray) -> BoolArray:
        """Return True for each of `ids` that is (still) in the ring, in the shape of `ids`."""
        contained: BoolArray = (ids >= self.oldest) & (ids <= self.newest)
        uneven = self._floors.uneven(self._first(self.time))
        return contained & self._floors.above(ids) if uneven else contained

    def rows(self, envs: Sequence[int] | None = None) -> IntArray:
        """Return the ids of all valid rows, of these environments or of all, oldest first."""
        return valid_rows(self, envs)

    def position(self, ids: IntArray) -> IntArray:
        """Return the positions of rows `ids` in arrays over [slots * N]; ids of the time step after
        the newest are allowed."""
        rows = self.slots * self.envs
        at = ids - self.oldest // rows * rows  # in [0, 2 rows]; cheaper than a remainder
        np.subtract(at, rows, out=at, where=at >= rows)
        return at

    def add(self, trajectory: Trajectory) -> None:
        """Write T steps of all environments over the oldest rows. If there are more steps than
        slots, the newest are kept.

        The first observations must follow the last steps of the previous call, except where those
        ended the episode (marked by `last`, and by an entry in `cuts`). Observations in `cuts` of
        terminated episodes are stored only with `terminal`: otherwise they are never used, since
        their discount is 0. Entries of `extra` are stored if they were passed to the constructor.

        Raises:
            SpaceError: For arrays of another shape or dtype.
            EnvironmentFault: For `cuts` at steps where no episode ended.
        """
        arrays, following = self._read(trajectory)
        steps = len(trajectory.reward)
        end = self.time + steps
        skip = max(0, steps - self.slots + 1)  # steps that would be overwritten immediately
        first_kept = max(0, self._first(end) - self.time)
        cuts = self._read_cuts(trajectory, first_kept) if len(trajectory.cuts.t) else None
        self._drop(self._first(end))
        for low, high, first in self._spans(self.time + skip, steps - skip):
            for column, rows in zip(self._columns.values(), arrays, strict=True):
                column[low:high] = rows[skip + first : skip + first + high - low]
        for name, now in zip(self._layout.obs, following, strict=True):
            self._columns[name][end % self.slots] = now
        self._drawable += int(np.count_nonzero(trajectory.valid[first_kept:]))
        if cuts is not None:
            self._cuts.append(*cuts)
        self.time = end

    def forget(self, steps: int | None = None) -> None:
        """Drop the oldest `steps` time steps; None: all."""
        first = (
            self.time if steps is None else min(self._first(self.time) + max(steps, 0), self.time)
        )
        self._drop(first)
        self._forgotten = max(first, self._forgotten)

    def forget_rows(self, count: int, envs: Sequence[int] | None = None) -> IntArray:
        """Drop the `count` oldest valid rows, of these environments or of all, and return their
        positions. Some rows of the oldest time step may remain: later calls drop those first."""
        ids, first = valid_rows(self, envs, max(count, 0)), self._first(self.time)
        at = self.position(ids)
        self.valid[at] = False
        self._drawable -= len(ids)
        self.forget(max(0, self._floors.drop(ids) - first))
        return at

    def break_off(self, envs: Sequence[int] | None = None) -> None:
        """Truncate the running episodes, of these environments or of all, after the newest rows:
        rows written later belong to other episodes."""
        ids = np.arange(max(self.oldest, self.newest + 1 - self.envs), self.newest + 1)
        if envs is not None:
            ids = ids[np.isin(ids % self.envs, envs)]
        ids = ids[~self.last.take(self.position(ids))]
        at = self.position(ids)
        self.last[at] = True
        going = self.discount.take(at) > 0
        slot = self.time % self.slots
        following = [self._columns[n][slot][ids[going] % self.envs] for n in self._layout.obs]
        self._cuts.append(ids[going], following)

    def transitions(self, ids: IntArray, n: int = 1) -> Batch:
        """Return the n-step transitions that start in rows `ids` [...]; fields are [..., *their
        own].

        reward = sum over k < m of discount_t ... discount_(t+k-1) reward_(t+k), discount =
        discount_t ... discount_(t+m-1), next_obs = the observation after row t + m - 1 (Sutton &
        Barto 2018, section 7.1). m is n, or less if the episode or the ring ends earlier; reward
        and discount are then exact for that m. float32; gamma is the one stored with the rows.
        After a termination the discount is 0, and next_obs is the true last observation with
        `terminal`, otherwise finite but meaningless.

        Raises:
            SettingError: For ids that are not in the ring.
        """
        shape, row = ids.shape, ids.ravel()
        if row.size and not self.contains(row).all():
            raise SettingError(
                f"rows {row.min()} to {row.max()} are not all in the ring, which holds "
                f"{self.oldest} to {self.newest} (fewer for some environments).",
                "rows in the ring",
                "sample them after the last add, or select rows with `contains`.",
            )
        at = self.position(row)
        discount = self.discount.take(at)
        kept = {name: windows.read(self, name, at) for name in ("reward", *self._extra)}
        final, at_final = row, at
        if n > 1:
            summed = {name: x for name, x in kept.items() if name in windows.REWARDS}
            final = windows.accumulate(self, row, summed, discount, n)
            at_final = self.position(final)
        after = self._next_obs(final, at_final, discount)
        obs = self._obs_at(at)
        action = self._flat["action"].take(at, axis=0)

        def shaped(x: AnyArray) -> AnyArray:
            return x.reshape((*shape, *x.shape[1:]))

        return Batch(
            self._layout.join([shaped(x) for x in obs]),
            shaped(action),
            shaped(kept.pop("reward")),
            shaped(discount),
            self._layout.join([shaped(x) for x in after]),
            extra={name.removeprefix("extra/"): shaped(x) for name, x in kept.items()},
        )

    def observed(self, ids: IntArray) -> Tree:
        """Return the observations [..., *their own] in rows `ids` [...]."""
        parts = self._obs_at(self.position(ids.ravel()))
        return self._layout.join([x.reshape(*ids.shape, *x.shape[1:]) for x in parts])

    def after(self, ids: IntArray) -> Tree:
        """Return the observations [B, ...] after rows `ids` [B]. Without `terminal` they are
        meaningless after a termination."""
        at = self.position(ids)
        return self._layout.join(self._next_obs(ids, at, self.discount.take(at)))

    def state(self) -> State:
        """Return (JSON data, arrays) for `load_state`, for the slots in use. The arrays are views,
        valid until the next add, since a copy could double the memory of the ring."""
        used = self.used_slots(self.time)
        arrays = {name: column[:used] for name, column in self._columns.items()}
        arrays["cut_ids"] = self._cuts.ids
        for name, x in zip(self._layout.obs, self._cuts.obs, strict=True):
            arrays[f"cut_{name}"] = x
        meta = {
            "slots": self.slots,
            "envs": self.envs,
            "time": self.time,
            "kept": self._forgotten,
            "floors": self._floors.steps.tolist(),
            "terminal_from": self.terminal_from,
        }
        return meta, arrays

    def load_state(self, meta: JSONDict, arrays: dict[str, AnyArray]) -> None:
        """Restore the ring whose `state` this was, bit for bit: the same ids, the same transitions,
        now and later.

        Raises:
            ResumeError: If that ring had another size, other observations or other actions.
        """
        time = int(meta["time"])
        used = self.used_slots(time)
        expected = {n: (used, *x.shape[1:], x.dtype) for n, x in self._columns.items()}
        saved = {n: (*arrays[n].shape, arrays[n].dtype) for n in expected if n in arrays}
        if (meta["slots"], meta["envs"]) != (self.slots, self.envs) or saved != expected:
            raise ResumeError(
                f"the saved replay buffer has {meta['slots']} slots of {meta['envs']} "
                f"environment(s), with {saved}.",
                f"{self.slots} slots of {self.envs} environment(s), with {expected}",
                "resume with the run's original capacity, number of environments and environment.",
            )
        for name, column in self._columns.items():
            fill(column[:used], arrays[name])
        self._cuts.clear()
        self._cuts.append(arrays["cut_ids"], [arrays[f"cut_{name}"] for name in self._layout.obs])
        self.time, self._forgotten = time, int(meta.get("kept", 0))
        if self.terminal_from != SPAN:  # rings in older checkpoints did not store them
            self.terminal_from = min(int(meta.get("terminal_from", SPAN)), time)
        self._floors.steps[:] = meta.get("floors", 0)
        oldest = self._first(time)
        self._drawable = self._count_valid(oldest, time - oldest)

    def used_slots(self, time: int) -> int:
        """Return the number of used slots after `time` steps were written: one more than rows of an
        environment, for the observations after the newest."""
        return min(time + 1, self.slots) if time else 0

    def _read(self, trajectory: Trajectory) -> tuple[list[AnyArray], list[AnyArray]]:
        """Return (the trajectory's arrays, one per column; the observations after it, one per
        column of observations), after a check of shapes and dtypes."""
        following = self._layout.obs_columns(trajectory.bootstrap)
        arrays = [
            *self._layout.obs_columns(trajectory.obs),
            trajectory.action,
            *(getattr(trajectory, name) for name in ROW),
            *(trajectory.extra[name.removeprefix("extra/")] for name in self._extra),
        ]
        steps = len(trajectory.reward)
        for (name, column), x in zip(self._columns.items(), arrays, strict=True):
            check_column(name, x, (steps, *column.shape[1:]), column.dtype)
        for name, x in zip(self._layout.obs, following, strict=True):
            column = self._columns[name]
            check_column(f"bootstrap of {name}", x, column.shape[1:], column.dtype)
        named = dict(zip(self._columns, arrays, strict=True))
        newest = (self.time - 1) % self.slots if self.time else None
        self._layout.check_order(trajectory.obs, named, self._columns, newest)
        return arrays, following

    def _read_cuts(self, trajectory: Trajectory, skip: int) -> tuple[IntArray, list[AnyArray]]:
        """Return (increasing ids of the `cuts` to store, from step `skip` on; the last observations
        of their episodes)."""
        cuts: Cuts = trajectory.cuts
        parts = self._layout.obs_columns(cuts.obs)
        for name, x in zip(self._layout.obs, parts, strict=True):
            column = self._columns[name]
            check_column(f"cuts of {name}", x, (len(cuts.t), *column.shape[2:]), column.dtype)
        if not trajectory.last[cuts.t, cuts.env].all():
            raise EnvironmentFault(
                f"observations of truncated episodes were given for steps {cuts.t.tolist()} of "
                f"environments {cuts.env.tolist()}.",
                "them only for steps where an episode ended (`last`)",
                "set `last` in the collector at every step whose environment was reset.",
            )
        stored = cuts.t >= skip
        if self.terminal_from == SPAN:
            stored &= trajectory.discount[cuts.t, cuts.env] > 0
        ids = (self.time + cuts.t) * self.envs + cuts.env
        order = np.argsort(ids, kind="stable")
        order = order[stored[order]]
        return ids[order], [x[order] for x in parts]

    def _next_obs(self, final: IntArray, at_final: IntArray, discount: AnyArray) -> list[AnyArray]:
        """Return the observations after rows `final`, one array per leaf."""
        obs = self._obs_at(self.position(final + self.envs))
        if len(self._cuts):
            last = self.last.take(at_final)
            ended = np.flatnonzero(last & (discount > 0) if self.terminal_from == SPAN else last)
            which, where = self._cuts.find(final[ended])
            if which.size:
                rows, saved = ended[which], dict(zip(self._layout.obs, self._cuts.obs, strict=True))
                for x, (name, leaf) in zip(obs, self._layout.leaves.items(), strict=True):
                    new = saved[name][where]
                    if leaf.stack:
                        age = saved[f"age/{name}"][where]
                        new = stacks.after(
                            self._flat[name], at_final[rows], self.envs, leaf.stack, new, age
                        )
                    x[rows] = new
        return obs

    def _obs_at(self, at: IntArray) -> list[AnyArray]:
        """Return the observations at these positions, one array per leaf."""
        return [
            stacks.together(self._flat[name], self._flat[f"age/{name}"], at, self.envs, leaf.stack)
            if leaf.stack
            else self._flat[name].take(at, axis=0)
            for name, leaf in self._layout.leaves.items()
        ]

    def _first(self, time: int) -> int:
        """Return the oldest time step in the ring after `time` steps were written."""
        return max(self._forgotten, time - self.slots + 1 + self.history)

    def _drop(self, oldest: int) -> None:
        """Drop the rows before time step `oldest`."""
        first = self.oldest // self.envs
        if oldest > first:
            self._drawable -= self._count_valid(first, min(oldest, self.time) - first)
            self._cuts.drop(oldest * self.envs)

    def _count_valid(self, start: int, steps: int) -> int:
        valid = self._columns["valid"]
        return sum(
            int(np.count_nonzero(valid[low:high])) for low, high, _ in self._spans(start, steps)
        )

    def _spans(self, start: int, steps: int) -> Iterator[tuple[int, int, int]]:
        """Yield the slots of the time steps from `start` on, as (first slot, end slot, number of
        steps before)."""
        low = start % self.slots
        high = min(low + steps, self.slots)
        yield low, high, 0
        if high - low < steps:
            yield 0, steps - (high - low), high - low
