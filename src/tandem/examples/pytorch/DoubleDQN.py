"""Double DQN (van Hasselt et al. 2016, arXiv:1509.06461) on CartPole, in PyTorch.

python -m tandem.examples.pytorch.DoubleDQN
"""

from __future__ import annotations

from typing import Any

import gymnasium
import torch
from torch import nn

from tandem.agents.rl import RL_pytorch, assign_param
from tandem.exploration import AdaptiveEpsGreedyPolicy


class DoubleDQN(RL_pytorch):
    def __init__(self, state_dim: int, hidden_dim: int, action_dim: int) -> None:
        super().__init__()
        self.q_net, self.target_q_net = (
            nn.Sequential(
                nn.Linear(state_dim, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, action_dim)
            )
            for _ in range(2)
        )
        self.param = self.q_net.parameters()
        self.env = gymnasium.make("CartPole-v1")
        self.gamma = 0.98

    def action(self, s: Any) -> Any:
        return self.q_net(s)

    def __call__(self, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> Any:
        q_value = self.q_net(s).gather(1, a[:, None])[:, 0]
        with torch.no_grad():
            best = self.q_net(next_s).argmax(1)  # one network chooses, the other one judges
            target = (
                r + self.gamma * (1 - d) * self.target_q_net(next_s).gather(1, best[:, None])[:, 0]
            )
        TD = q_value - target
        self.prioritized_replay.update(TD)  # what PR=True draws by
        return (TD**2).mean()

    def update_param(self) -> None:
        assign_param(self.target_q_net.parameters(), self.q_net.parameters())


def main(seed: int = 0, episodes: int = 1000) -> DoubleDQN:
    torch.manual_seed(seed)
    model = DoubleDQN(4, 128, 2)
    model.seed = seed
    policy = AdaptiveEpsGreedyPolicy(1.0, 0.01, 5e-4)
    model.set(
        policy=policy,
        pool_size=10000,
        batch=64,
        num_steps=3,
        update_steps=100,
        trial_count=10,
        criterion=475,
    )
    model.train(torch.optim.Adam(model.param, 5e-4), episodes)
    return model


if __name__ == "__main__":
    main()
