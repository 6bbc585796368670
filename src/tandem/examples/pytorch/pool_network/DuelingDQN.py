"""DuelingDQN with its environments in several processes; see `tandem.examples.pytorch.DuelingDQN`.

python -m tandem.examples.pytorch.pool_network.DuelingDQN
"""

from __future__ import annotations

import gymnasium
import torch

from tandem.examples.pytorch import DQN as basic
from tandem.examples.pytorch import DuelingDQN as single


class DuelingDQN(single.DuelingDQN):
    def __init__(
        self, state_dim: int, hidden_dim: int, action_dim: int, processes: int = 1
    ) -> None:
        super().__init__(state_dim, hidden_dim, action_dim)
        self.env = [gymnasium.make("CartPole-v1") for _ in range(processes)]


def main(seed: int = 0, episodes: int = 1000, processes: int = 4) -> DuelingDQN:
    torch.manual_seed(seed)
    model = DuelingDQN(4, 128, 2, processes)
    basic.train(model, seed, episodes, processes, update_batches=20)
    return model


if __name__ == "__main__":
    main()
