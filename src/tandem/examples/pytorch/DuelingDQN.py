"""Dueling DQN (Wang et al. 2016, arXiv:1511.06581) on CartPole, in PyTorch.

python -m tandem.examples.pytorch.DuelingDQN
"""

from __future__ import annotations

from typing import Any

import gymnasium
import torch
from torch import nn

from tandem.agents.rl import RL_pytorch, assign_param
from tandem.exploration import AdaptiveEpsGreedyPolicy


class DuelingNet(nn.Module):
    def __init__(self, state_dim: int, hidden_dim: int, action_dim: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(state_dim, hidden_dim), nn.ReLU())
        self.advantage, self.value = nn.Linear(hidden_dim, action_dim), nn.Linear(hidden_dim, 1)

    def forward(self, s: Any) -> Any:
        h = self.body(s)
        advantage = self.advantage(h)
        return self.value(h) + advantage - advantage.mean(1, keepdim=True)  # equation 9


class DuelingDQN(RL_pytorch):
    def __init__(self, state_dim: int, hidden_dim: int, action_dim: int) -> None:
        super().__init__()
        self.q_net, self.target_q_net = (
            DuelingNet(state_dim, hidden_dim, action_dim) for _ in range(2)
        )
        self.param = self.q_net.parameters()
        self.env = gymnasium.make("CartPole-v1")
        self.gamma = 0.98

    def action(self, s: Any) -> Any:
        return self.q_net(s)

    def __call__(self, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> Any:
        q_value = self.q_net(s).gather(1, a[:, None])[:, 0]
        with torch.no_grad():
            target = r + self.gamma * (1 - d) * self.target_q_net(next_s).max(1).values
        TD = q_value - target
        self.prioritized_replay.update(TD)  # what PR=True draws by
        return (TD**2).mean()

    def update_param(self) -> None:
        assign_param(self.target_q_net.parameters(), self.q_net.parameters())


def main(seed: int = 0, episodes: int = 1000) -> DuelingDQN:
    torch.manual_seed(seed)
    model = DuelingDQN(4, 128, 2)
    model.seed = seed
    policy = AdaptiveEpsGreedyPolicy(1.0, 0.01, 5e-4)
    model.set(
        policy=policy,
        pool_size=10000,
        batch=64,
        num_steps=3,
        update_steps=20,
        trial_count=10,
        criterion=475,
    )
    model.train(torch.optim.Adam(model.param, 5e-4), episodes)
    return model


if __name__ == "__main__":
    main()
