"""Small agents and environments whose every number can be said beforehand."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import nn

from tandem.agents.rl import RL_pytorch, assign_param
from tandem.exploration import GreedyQPolicy


class Clock:
    """A plain object: observes the step of the episode and how many episodes have ended, rewards
    the step, and ends after `length` of them."""

    def __init__(self, length: int = 5, cut: bool = False) -> None:
        self.length, self.cut, self.episode = length, cut, 0
        self.action_space = spaces.Discrete(2)
        self.actions: list[Any] = []

    def reset(self) -> Any:
        self.t = 0
        return np.array([0.0, self.episode], np.float32)

    def step(self, action: Any) -> Any:
        self.t += 1
        self.actions.append(action)
        done = self.t == self.length
        info = {"TimeLimit.truncated": True} if done and self.cut else {}
        obs = np.array([self.t, self.episode], np.float32)
        self.episode += done
        return obs, float(self.t), done, info


class Walk(Clock):
    """Ends after as many steps as its seed says, and shows it, so that an episode can be played
    again."""

    def reset(self, seed: int = 0) -> Any:
        self.t, self.episode, self.length = 0, seed % 100, 4 + seed % 5
        return np.array([0.0, self.episode / 100], np.float32)

    def step(self, action: Any) -> Any:
        self.t += 1
        return (
            np.array([self.t, self.episode / 100], np.float32),
            float(self.t + action),
            self.t == self.length,
            {},
        )


class Probe(RL_pytorch):
    """Learns nothing of interest, and writes down what it is told."""

    def __init__(self, env: Any = None, width: int = 2, actions: int = 2) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net, self.target = nn.Linear(width, actions), nn.Linear(width, actions)
        self.param = self.net.parameters()
        self.env = Clock() if env is None else env
        self.seen: list[Any] = []
        self.losses = 0
        self.copies: list[int] = []
        self.rehearsed = False

    def action(self, s: Any) -> Any:
        return self.net(s)

    def __call__(self, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> Any:
        self.losses += 1
        self.seen.append((s, a, next_s, r, d))
        TD = self.net(s)[:, 0] - r
        self.prioritized_replay.update(TD)
        return (TD**2).mean()

    def update_param(self) -> None:
        self.copies.append(self.losses - 1)  # one more was made to look at the loss
        assign_param(self.target.parameters(), self.param)


def trained(
    agent: Any, episodes: int | None = 4, *, lr: float = 0.01, train: Any = None, **choices: Any
) -> Any:
    """The agent after so many episodes of silent training, and what `train` gave. A mini-batch
    follows a step, where the case says nothing else."""
    one = {} if choices.get("PPO") else {"num_updates": 1}
    agent.set(**{"policy": GreedyQPolicy(), "pool_size": 100, "batch": 4, **one, **choices})
    agent.given = agent.train(torch.optim.SGD(agent.param, lr), episodes, p=0, **(train or {}))
    return agent
