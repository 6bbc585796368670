"""DDPG with its environments in several processes; see `tandem.examples.pytorch.DDPG`.

python -m tandem.examples.pytorch.pool_network.DDPG
"""

from __future__ import annotations

import gymnasium
import numpy as np
import torch

from tandem.examples.pytorch import DDPG as one
from tandem.exploration import GaussianWhiteNoiseProcess


class DDPG(one.DDPG):
    def __init__(
        self, hidden_dim: int, sigma: float, gamma: float, tau: float, processes: int
    ) -> None:
        super().__init__(hidden_dim, sigma, gamma, tau)
        self.env = [gymnasium.make("Pendulum-v1") for _ in range(processes)]


def main(seed: int = 0, processes: int = 4) -> DDPG:
    torch.manual_seed(seed)
    model = DDPG(128, 0.2, 0.98, 0.005, processes)
    model.seed = seed
    noise = GaussianWhiteNoiseProcess(sigma=model.sigma)
    model.set(noise=noise, pool_size=10000, batch=64, criterion=-170, trial_count=30)
    optimizers = [torch.optim.Adam(model.param[0], 3e-4), torch.optim.Adam(model.param[1], 3e-3)]
    model.train(optimizers, 150, pool_network=True, processes=processes)
    print(
        "mean return of ten episodes: "
        f"{np.mean([model.run_agent(200, i)[1] for i in range(10)]):.0f}"
    )
    return model


if __name__ == "__main__":
    main()
