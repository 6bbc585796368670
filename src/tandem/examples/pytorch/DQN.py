"""DQN (Mnih et al. 2015, doi:10.1038/nature14236) on CartPole, in PyTorch.

python -m tandem.examples.pytorch.DQN
"""

from __future__ import annotations

from typing import Any

import gymnasium
import torch
from torch import nn

from tandem.agents.rl import RL_pytorch, assign_param
from tandem.exploration import AdaptiveEpsGreedyPolicy


class DQN(RL_pytorch):
    def __init__(self, state_dim: int, hidden_dim: int, action_dim: int) -> None:
        super().__init__()
        self.q_net, self.target_q_net = (
            self.network(state_dim, hidden_dim, action_dim) for _ in range(2)
        )
        self.param = self.q_net.parameters()
        self.env = gymnasium.make("CartPole-v1")
        self.gamma = 0.98

    def network(self, state_dim: int, hidden_dim: int, action_dim: int) -> nn.Module:
        return nn.Sequential(
            nn.Linear(state_dim, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, action_dim)
        )

    def action(self, s: Any) -> Any:
        return self.q_net(s)

    def next_value(self, next_s: Any) -> Any:
        return self.target_q_net(next_s).max(1).values

    def __call__(self, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> Any:
        q_value = self.q_net(s).gather(1, a[:, None])[:, 0]
        with torch.no_grad():
            target = r + self.gamma * (1 - d) * self.next_value(next_s)
        TD = q_value - target
        self.prioritized_replay.update(TD)  # what PR=True draws by
        return (TD**2).mean()

    def update_param(self) -> None:
        assign_param(self.target_q_net.parameters(), self.q_net.parameters())


def main(seed: int = 0, episodes: int = 1000) -> DQN:
    torch.manual_seed(seed)
    model = DQN(4, 128, 2)
    train(model, seed, episodes, update_steps=100)
    return model


def train(
    model: DQN, seed: int, episodes: int, processes: int | None = None, **settings: Any
) -> None:
    """Trains this agent, or one that is based on it, until the mean return of ten episodes is
    475."""
    model.seed = seed
    model.set(
        policy=AdaptiveEpsGreedyPolicy(1.0, 0.01, 5e-4),
        pool_size=10000,
        batch=64,
        num_steps=3,
        trial_count=10,
        criterion=475,
        **settings,
    )
    model.train(torch.optim.Adam(model.param, 5e-4), episodes, processes=processes)


if __name__ == "__main__":
    main()
