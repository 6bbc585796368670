"""Hindsight experience replay (Andrychowicz et al. 2017, arXiv:1707.01495): what an episode
reached, it is said afterwards, was its goal. Goals are found by index arithmetic on the ring, and
rewards computed anew for a whole batch."""

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


INFO = "info/"  # begins the names of stored entries of `info`


class Info(dict[Any, Any]):
    """The stored entries of `info` of B rows, by name: [B, ...]. Iterating and info[i] give those
    of each row. Reading anything else raises."""

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
        return sum(1 for _ in self)  # list() would ask for the length


class Goals(Protocol):
    """The goals of an environment, as hindsight uses them."""

    def achieved(self, obs: Tree) -> Array:
        """The goals [B, ...] that observations [B, ...] reach."""

    def put(self, obs: Tree, goal: Array) -> Tree:
        """The observations with these goals [B, ...]."""

    def judge(self, next_obs: Tree, goal: Array, info: Any) -> tuple[Array, Array]:
        """(reward, terminated), [B] each, of having arrived at next_obs with these goals."""


class DictGoals(NamedTuple):
    """Goals as Gymnasium-Robotics has them: entries `achieved_goal` and `desired_goal` of Dict
    observations. The functions are the environment's, of (achieved, desired, info) over batches;
    without `compute_terminated` nothing terminates. Where that gives one answer for a batch, as
    Gymnasium-Robotics' own do, it is called for each goal. stored: the entries of `info` that are
    kept with each step and passed to them. close: frees what the environment holds. env: it, where
    it is made for this alone."""

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
    """Gives transitions that were drawn other goals.

    k: relabeled transitions for each one that keeps its goal, so a share of k / (k + 1); None
    relabels all. strategy: a goal was reached later in the episode ("future"), at its end
    ("final"), or at any time ("episode"); section 4.5. Goals are what was achieved after a row. A
    step that terminated its episode remains terminal with every goal. Where the observation after
    it is not known (`EpisodeBounds.known`), it is no goal and keeps its own.
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
        """(rows after which the new goals of rows `ids` [B] were reached, whether there is one)."""
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
        """The batch of one-step transitions `ids` (any shape [...]) with new goals where chance
        says so, and with rewards and discounts to match; it may be written into. Raises
        SettingError for judgements of another shape."""
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
