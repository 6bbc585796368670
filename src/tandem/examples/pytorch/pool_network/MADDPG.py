"""MADDPG with its relays in several processes; see `tandem.examples.pytorch.MADDPG`.

python -m tandem.examples.pytorch.pool_network.MADDPG
"""

from __future__ import annotations

import torch

from tandem.examples.pytorch import MADDPG as one
from tandem.examples.worlds import Relay
from tandem.exploration import SoftmaxPolicy


class DDPG(one.DDPG):
    def __init__(
        self, hidden_dim: int, sigma: float, gamma: float, tau: float, processes: int
    ) -> None:
        super().__init__(hidden_dim, sigma, gamma, tau)
        self.env = [Relay() for _ in range(processes)]


def main(seed: int = 0, processes: int = 4) -> DDPG:
    torch.manual_seed(seed)
    model = DDPG(128, 0.1, 0.98, 0.005, processes)
    model.seed = seed
    model.set(policy=SoftmaxPolicy(), pool_size=3000, batch=32, trial_count=10, MARL=True)
    optimizers = [torch.optim.Adam(model.param[0]), torch.optim.Adam(model.param[1])]
    model.train(optimizers, 100, pool_network=True, processes=processes)
    return model


if __name__ == "__main__":
    main()
