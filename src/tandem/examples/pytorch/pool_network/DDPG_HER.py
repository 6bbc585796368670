"""DDPG with hindsight and its point worlds in several processes; see
`tandem.examples.pytorch.DDPG_HER`.

python -m tandem.examples.pytorch.pool_network.DDPG_HER
"""

from __future__ import annotations

from typing import Any

import torch

from tandem.examples.pytorch import DDPG_HER as one
from tandem.examples.worlds import PointWorld
from tandem.exploration import GaussianWhiteNoiseProcess


class DDPG(one.DDPG):
    def __init__(
        self, hidden_dim: int, sigma: float, gamma: float, tau: float, processes: int
    ) -> None:
        super().__init__(hidden_dim, sigma, gamma, tau)
        self.env = [PointWorld(sigma) for _ in range(processes)]

    def reward_done_func(self, next_state: Any, goal: Any) -> Any:
        return PointWorld.judge(next_state, goal)


def main(seed: int = 0, processes: int = 4) -> DDPG:
    torch.manual_seed(seed)
    model = DDPG(128, 0.1, 0.98, 0.005, processes)
    model.seed = seed
    model.set(
        noise=GaussianWhiteNoiseProcess(),
        pool_size=10000,
        batch=256,
        criterion=-5,
        trial_count=10,
        HER=True,
    )
    optimizers = [torch.optim.Adam(model.param[0]), torch.optim.Adam(model.param[1])]
    model.train(optimizers, 2000, pool_network=True, processes=processes)
    return model


if __name__ == "__main__":
    main()
