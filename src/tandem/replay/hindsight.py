"""Hindsight experience replay (Andrychowicz et al. 2017, arXiv:1707.01495): what an episode
reached, it is said afterwards, was its goal. Goals are found by index arithmetic on the ring, and
rewards computed anew for a whole batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from tandem.errors import SettingError
from tandem.replay.buffer import Ring
from tandem.replay.episodes import Episodes
from tandem.types import Array, Batch, BoolArray, IntArray, Tree, tree_map

Strategy = Literal["future", "final", "episode"]
STRATEGIES = ("future", "final", "episode")


class Goals(Protocol):
    """What hindsight has to know of goals."""

    def achieved(self, obs: Tree) -> Array:
        """The goals [B, ...] that observations [B, ...] reach."""

    def put(self, obs: Tree, goal: Array) -> Tree:
        """The observations with these goals [B, ...]."""

    def judge(self, next_obs: Tree, goal: Array) -> tuple[Array, Array]:
        """(reward, terminated), [B] each, of having arrived at next_obs with these goals."""


class DictGoals(NamedTuple):
    """Goals as Gymnasium-Robotics has them: entries `achieved_goal` and `desired_goal` of Dict
    observations. The functions are the environment's, of (achieved, desired, info) over batches;
    without `compute_terminated` nothing terminates. Where that gives one answer for a batch, as
    Gymnasium-Robotics' own do, it is asked for each goal."""

    compute_reward: Callable[[Array, Array, Any], Array]
    compute_terminated: Callable[[Array, Array, Any], Array] | None = None

    def achieved(self, obs: Tree) -> Array:
        return obs["achieved_goal"]

    def put(self, obs: Tree, goal: Array) -> Tree:
        return {**obs, "desired_goal": goal.astype(obs["desired_goal"].dtype)}

    def judge(self, next_obs: Tree, goal: Array) -> tuple[Array, Array]:
        reward = np.asarray(self.compute_reward(next_obs["achieved_goal"], goal, {}), np.float32)
        if self.compute_terminated is None:
            return reward, np.zeros(len(goal), np.bool_)
        achieved = next_obs["achieved_goal"]
        terminated = np.asarray(self.compute_terminated(achieved, goal, {}), np.bool_)
        if terminated.shape == ():
            each = [self.compute_terminated(a, g, {}) for a, g in zip(achieved, goal, strict=True)]
            terminated = np.array(each, np.bool_)
        return reward, terminated


class Hindsight:
    """Gives transitions that were drawn other goals.

    k: relabelled transitions for each one that keeps its goal, so a share of k / (k + 1); None
    relabels all. strategy: a goal was reached later in the episode ("future"), at its end
    ("final"), or at any time ("episode"); section 4.5. gamma: discount after a step that does not
    terminate. Goals are what was seen after a row; after a termination nothing is known, so the
    last row of such an episode is no goal, and keeps its own: no other can be judged there.
    """

    def __init__(
        self,
        ring: Ring,
        goals: Goals,
        gamma: float,
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
                f"k={k!r}.", "a number from 0 on, or None to relabel all", "use k=4."
            )
        self.ring, self.goals, self.gamma, self.strategy = ring, goals, gamma, strategy
        self.share = 1.0 if k is None else k / (k + 1)
        self.episodes = Episodes(ring)

    def sources(self, rng: np.random.Generator, ids: IntArray) -> tuple[IntArray, BoolArray]:
        """(rows after which the new goals of rows `ids` [B] were reached, whether there is one)."""
        ring = self.ring
        first, last = self.episodes.bounds(ids)
        high = self.episodes.known(last)
        low = ids if self.strategy == "future" else first
        usable: BoolArray = (high >= low) & (ring.discount.take(ring.position(ids)) > 0)
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
        chosen = rng.random(len(rows)) < self.share
        source, usable = self.sources(rng, rows)
        at = np.flatnonzero(chosen & usable)
        if not at.size:
            return batch
        flat: Batch = tree_map(lambda x: x.reshape(-1, *x.shape[len(shape) :]), batch)
        goal = self.goals.achieved(self.ring.after(source[at]))
        obs, next_obs = (tree_map(lambda x: x[at], tree) for tree in (flat.obs, flat.next_obs))
        reward, terminated = self.goals.judge(next_obs, goal)
        if np.shape(reward) != at.shape or np.shape(terminated) != at.shape:
            raise SettingError(
                f"hindsight was told rewards of shape {np.shape(reward)} and ends of shape "
                f"{np.shape(terminated)} for"
                f" {len(at)} transitions.",
                f"one of each for every transition: ({len(at)},)",
                "let judge(obs, goal) return two arrays, with one number for each row of obs.",
            )

        def write(into: Tree, rows: Tree) -> None:
            tree_map(lambda x, new: x.__setitem__(at, new), into, rows)

        write(flat.obs, self.goals.put(obs, goal))
        write(flat.next_obs, self.goals.put(next_obs, goal))
        flat.reward[at] = self.ring.scaled(reward) if self.ring.scaled else reward
        flat.discount[at] = np.where(terminated, np.float32(0), np.float32(self.gamma))
        relabelled: Batch = tree_map(lambda x: x.reshape(*shape, *x.shape[1:]), flat)
        return relabelled
