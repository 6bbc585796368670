"""The agent whose file is among the old checkpoints: double DQN with prioritized replay on
CartPole."""

import copy
from typing import Any

import gymnasium
import torch
from torch import nn

from tandem import RL_pytorch
from tandem.exploration import EpsGreedyQPolicy


class OldAgent(RL_pytorch):
    def __init__(self) -> None:
        super().__init__()
        self.gamma = 0.98
        torch.manual_seed(11)
        self.net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        self.target = copy.deepcopy(self.net)
        self.param = self.net.parameters()
        self.env = gymnasium.make("CartPole-v1")
        self.set(
            policy=EpsGreedyQPolicy(0.1),
            pool_size=200,
            batch=16,
            update_steps=8,
            num_steps=2,
            PR=True,
        )

    def action(self, s: Any) -> Any:
        return self.net(s)

    def __call__(self, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> Any:
        q = self.net(s).gather(1, a.long().view(-1, 1))[:, 0]
        best = self.net(next_s).argmax(1, keepdim=True)
        following = self.target(next_s).gather(1, best)[:, 0]
        td = r + self.gamma * (1 - d) * following.detach() - q
        self.prioritized_replay.update(td)
        return (td**2).mean()

    def update_param(self) -> None:
        self.target.load_state_dict(self.net.state_dict())
