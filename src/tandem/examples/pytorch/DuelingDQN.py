"""Dueling DQN (Wang et al. 2016, arXiv:1511.06581) on CartPole, in PyTorch: DQN with a network of
two heads, one for the state's value and one for the advantages of actions.

python -m tandem.examples.pytorch.DuelingDQN
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tandem.examples.pytorch import DQN as basic


class DuelingNet(nn.Module):
    def __init__(self, state_dim: int, hidden_dim: int, action_dim: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(state_dim, hidden_dim), nn.ReLU())
        self.advantage, self.value = nn.Linear(hidden_dim, action_dim), nn.Linear(hidden_dim, 1)

    def forward(self, s: Any) -> Any:
        h = self.body(s)
        advantage = self.advantage(h)
        return self.value(h) + advantage - advantage.mean(1, keepdim=True)  # equation 9


class DuelingDQN(basic.DQN):
    def network(self, state_dim: int, hidden_dim: int, action_dim: int) -> nn.Module:
        return DuelingNet(state_dim, hidden_dim, action_dim)


def main(seed: int = 0, episodes: int = 1000) -> DuelingDQN:
    torch.manual_seed(seed)
    model = DuelingDQN(4, 128, 2)
    basic.train(model, seed, episodes, update_steps=20)
    return model


if __name__ == "__main__":
    main()
