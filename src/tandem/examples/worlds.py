"""Small worlds for the examples: plain objects with `reset` and `step`, in the manner of gym before
0.26."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from tandem.types import Array

Info = dict[str, Any]


class PointWorld:
    """A point in the square (0..5)^2 walks from (0, 0) to a goal, which is within 0.5 of (4, 4)
    along each axis.

    A step moves it by `action * scale`, at most 1 along each axis, and costs 1, except the one that
    ends within 0.15 of the
    goal: it costs nothing and ends the episode. After 50 steps time is up. A straight walk takes 4
    steps to goals below 4.1 and 5 to those beyond, so the best returns are about -3 and -4.

    scale: how far an action of 1 goes; actions are from -1 / scale to 1 / scale. Noise of deviation
    1 moves the point by `scale`, so the goal cannot be hit reliably where it is much above 0.1.
    """

    limit = 50

    def __init__(self, scale: float = 0.1) -> None:
        self.scale = scale
        self.observation_space = spaces.Box(0.0, 5.0, (2,), np.float32)
        self.action_space = spaces.Box(-1 / scale, 1 / scale, (2,), np.float32)
        self.rng = np.random.default_rng()
        self.state = self.goal = np.zeros(2, np.float32)
        self.steps = 0

    def reset(self, seed: int | None = None) -> Array:
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.steps = 0
        self.state = np.zeros(2, np.float32)
        self.goal = self.rng.uniform(3.5, 4.5, 2).astype(np.float32)
        return self.state

    def step(self, action: Array) -> tuple[Array, float, bool, Info]:
        self.steps += 1
        self.state = np.clip(
            self.state + np.clip(np.asarray(action) * self.scale, -1, 1), 0, 5
        ).astype(np.float32)
        reward, done = self.judge(self.state, self.goal)
        cut = self.steps >= self.limit and not done
        return self.state, float(reward), bool(done) or cut, {"TimeLimit.truncated": cut}

    @staticmethod
    def judge(state: Array, goal: Array) -> tuple[Array, Array]:
        """(reward, whether it is there) of points [..., 2] and goals [..., 2]."""
        there = np.linalg.norm(state - goal, axis=-1) <= 0.15
        return np.where(there, 0.0, -1.0), there


class Relay:
    """Two agents, each at a gate that only the other one can open.

    The state of an agent, [4], is the side that its light is on, and whether its gate is open, both
    as one-hot vectors: (left, right, shut, open). An agent that chooses the side of its own light
    opens the gate of the other for the next step; else that one is shut. Both are paid 1 for each
    step in which both gates were open. Lights are drawn anew in each step, gates are shut at first,
    and an episode has 25 steps.

    What an agent does shows in the state of the other alone, and pays a step later: the payoff of a
    step and an agent's own next state do not depend on its action. A critic that sees one agent can
    therefore learn nothing of that agent's actions by one-step targets; one that sees both can.
    Agents that choose right with the probabilities p and q have an expected return of 24 p q: 24 is
    the best, 6 is by chance.
    """

    limit = 25

    def __init__(self) -> None:
        self.rng = np.random.default_rng()
        self.light = np.zeros(2, np.int64)
        self.gate = np.zeros(2, np.int64)
        self.steps = 0

    def reset(self, seed: int | None = None) -> Array:
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.steps = 0
        self.gate = np.zeros(2, np.int64)
        return self._state()

    def step(self, action: Array) -> tuple[Array, list[float], list[bool], Info]:
        reward = float(self.gate.all())
        self.steps += 1
        self.gate = (np.asarray(action) == self.light)[::-1].astype(np.int64)
        cut = self.steps >= self.limit
        return self._state(), [reward, reward], [cut, cut], {"TimeLimit.truncated": cut}

    def _state(self) -> Array:
        self.light = self.rng.integers(0, 2, 2)
        one_hot = np.eye(2, dtype=np.float32)
        return np.concatenate([one_hot[self.light], one_hot[self.gate]], 1)


def fetch_reach() -> Any:
    import gymnasium_robotics

    gymnasium.register_envs(gymnasium_robotics)
    return gymnasium.make("FetchReach-v4")


def success(model: Any, episodes: int = 20) -> float:
    """The share of episodes at whose end the hand is where it should be."""
    ends = []
    for seed in range(episodes):
        last = model.run_agent(50, seed)[0][-1]
        ends.append(np.linalg.norm(last["achieved_goal"] - last["desired_goal"]) < 0.05)
    return float(np.mean(ends))
