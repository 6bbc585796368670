"""MADDPG with its relays in several processes; see `tandem.examples.pytorch.MADDPG`.

python -m tandem.examples.pytorch.pool_network.MADDPG
"""

from __future__ import annotations

import torch

from tandem.examples.pytorch import MADDPG as single
from tandem.examples.worlds import Relay


class DDPG(single.DDPG):
    def __init__(
        self, hidden_dim: int, sigma: float, gamma: float, tau: float, processes: int = 1
    ) -> None:
        super().__init__(hidden_dim, sigma, gamma, tau)
        self.env = [Relay() for _ in range(processes)]


def main(seed: int = 0, processes: int = 4) -> DDPG:
    torch.manual_seed(seed)
    model = DDPG(128, 0.1, 0.98, 0.005, processes)
    single.train(model, seed, processes)
    return model


if __name__ == "__main__":
    main()
