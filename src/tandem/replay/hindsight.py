"""Hindsight experience replay (Andrychowicz et al. 2017, arXiv:1707.01495): goals that an episode
achieved replace its original goal. Goals are found by index arithmetic on the ring, and rewards are
recomputed for a whole batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import repeat
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from tandem.errors import SettingError
from tandem.replay.buffer import Ring
from tandem.replay.episodes import EpisodeBounds
from tandem.spaces import Leaf
from tandem.types import Array, Batch, BoolArray, IntArray, Tree, tree_map

Strategy = Literal["future", "final", "episode"]
STRATEGIES = ("future", "final", "episode")


INFO = "info/"  # prefix of the names of stored entries of `info`


class Info(dict[Any, Any]):
    """Stored entries of `info` of B rows, by name: [B, ...]. Iteration and info[i] return the
    entries of single rows. Reading any other key raises SettingError."""

    def __missing__(self, key: Any) -> Any:
        if isinstance(key, int | np.integer):
            return list(self)[key]
        raise SettingError(
            f"compute_reward or compute_terminated reads info[{key!r}], which is not stored.",
            fix="give copy_info=True to tandem.train, and set the entry in every step's info to a "
            "number or an array; a custom agent takes reward_done_func instead.",
        )

    def get(self, key: Any, default: Any = None) -> Any:
        return self[key]

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or bool(self.__missing__(key))

    def __iter__(self) -> Iterator[Any]:
        rows = zip(*self.values(), strict=True) if self.values() else self.__missing__("...")
        return (Info(zip(self.keys(), row, strict=True)) for row in rows)

    def __len__(self) -> int:
        return sum(1 for _ in self)  # list() would call __len__


class Goals(Protocol):
    """Interface to an environment's goals, for hindsight."""

    def achieved(self, obs: Tree) -> Array:
        """Return the goals [B, ...] achieved in observations [B, ...]."""

    def put(self, obs: Tree, goal: Array) -> Tree:
        """Return the observations with these goals [B, ...]."""

    def judge(self, next_obs: Tree, goal: Array, info: Any) -> tuple[Array, Array]:
        """Return (reward, terminated), [B] each, for arriving at next_obs with these goals."""


class DictGoals(NamedTuple):
    """Goals in the format of Gymnasium-Robotics: entries `achieved_goal` and `desired_goal` of Dict
    observations. The functions are the environment's, applied to batches of (achieved, desired,
    info). Without `compute_terminated` no step terminates. If it returns a single value for a
    batch, as in Gymnasium-Robotics, it is called for each goal. stored: entries of `info` that are
    stored with each step and passed to the functions. close: releases the environment's resources.
    env: the environment, if it was created only for its goals."""

    compute_reward: Callable[[Array, Array, Any], Array]
    compute_terminated: Callable[[Array, Array, Any], Array] | None = None
    stored: Mapping[str, Leaf] = MappingProxyType({})
    close: Callable[[], Any] = lambda: None
    env: Any = None

    def achieved(self, obs: Tree) -> Array:
        return obs["achieved_goal"]

    def put(self, obs: Tree, goal: Array) -> Tree:
        return {**obs, "desired_goal": goal.astype(obs["desired_goal"].dtype)}

    def judge(self, next_obs: Tree, goal: Array, info: Any) -> tuple[Array, Array]:
        achieved = next_obs["achieved_goal"]
        reward = np.asarray(self.compute_reward(achieved, goal, info), np.float32)
        if self.compute_terminated is None:
            return reward, np.zeros(len(goal), np.bool_)
        terminated = np.asarray(self.compute_terminated(achieved, goal, info), np.bool_)
        if terminated.shape == ():
            rows = info if self.stored else repeat(info)
            each = map(self.compute_terminated, achieved, goal, rows)
            terminated = np.array(list(each), np.bool_)
        return reward, terminated


class Hindsight:
    """Relabels sampled transitions with other goals.

    k: relabeled transitions per transition that keeps its goal, a share of k / (k + 1); None
    relabels all. strategy: goals are achieved later in the episode ("future"), at its end
    ("final"), or at any time in it ("episode"); section 4.5. A goal is what was achieved in the
    observation after a row. A step that terminated its episode remains terminal with every goal. If
    the observation after it is not known (`EpisodeBounds.known`), that step provides no goal and
    keeps its own.
    """

    def __init__(
        self,
        ring: Ring,
        goals: Goals,
        *,
        k: float | None = 4.0,
        strategy: Strategy = "future",
    ) -> None:
        if strategy not in STRATEGIES:
            raise SettingError(
                f"strategy={strategy!r}.",
                f"one of {', '.join(STRATEGIES)}",
                "use strategy='future'.",
            )
        if k is not None and not k >= 0:
            raise SettingError(
                f"k={k!r}.", "a number of at least 0, or None to relabel all", "use k=4."
            )
        self.ring, self.goals, self.strategy = ring, goals, strategy
        self.share = 1.0 if k is None else k / (k + 1)
        self.episodes = EpisodeBounds(ring)

    def sources(self, rng: np.random.Generator, ids: IntArray) -> tuple[IntArray, BoolArray]:
        """Return (rows after which the new goals of rows `ids` [B] were achieved, flags of rows
        that have one)."""
        ring = self.ring
        first, last = self.episodes.bounds(ids)
        high = self.episodes.known(last)
        low = ids if self.strategy == "future" else first
        usable: BoolArray = high >= ids
        if self.strategy == "final":
            return np.where(usable, high, ids), usable
        steps = np.maximum((high - low) // ring.envs + 1, 1)
        drawn = low + ring.envs * np.minimum(
            (rng.random(len(ids)) * steps).astype(np.int64), steps - 1
        )
        return np.where(usable, drawn, ids), usable

    def relabel(self, rng: np.random.Generator, ids: IntArray, batch: Batch) -> Batch:
        """Relabel a random share of the one-step transitions `ids` (any shape [...]) of the batch,
        and update their rewards and discounts. The batch may be modified in place. Raise
        SettingError if `judge` returns arrays of another shape."""
        shape, rows = ids.shape, ids.reshape(-1)
        info = {n: batch.extra.pop(n) for n in [*batch.extra] if n.startswith(INFO)}
        chosen = rng.random(len(rows)) < self.share
        source, usable = self.sources(rng, rows)
        at = np.flatnonzero(chosen & usable)
        if not at.size:
            return batch
        flat: Batch = tree_map(lambda x: x.reshape(-1, *x.shape[len(shape) :]), batch)
        goal = self.goals.achieved(self.ring.after(source[at]))
        obs, next_obs = (tree_map(lambda x: x[at], tree) for tree in (flat.obs, flat.next_obs))
        stored = {
            n.removeprefix(INFO): x.reshape(-1, *x.shape[len(shape) :])[at] for n, x in info.items()
        }
        reward, terminated = self.goals.judge(next_obs, goal, Info(stored))
        if np.shape(reward) != at.shape or np.shape(terminated) != at.shape:
            raise SettingError(
                f"hindsight received rewards of shape {np.shape(reward)} and terminations of "
                f"shape {np.shape(terminated)} for {len(at)} transitions.",
                f"one of each for every transition: ({len(at)},)",
                "return two arrays from judge(obs, goal), with one number for each row of obs.",
            )

        def write(into: Tree, rows: Tree) -> None:
            tree_map(lambda x, new: x.__setitem__(at, new), into, rows)

        write(flat.obs, self.goals.put(obs, goal))
        write(flat.next_obs, self.goals.put(next_obs, goal))
        flat.reward[at] = self.ring.scaled(reward) if self.ring.scaled else reward
        flat.discount[at] = np.where(terminated, np.float32(0), flat.discount[at])
        return tree_map(lambda x: x.reshape(*shape, *x.shape[1:]), flat)
