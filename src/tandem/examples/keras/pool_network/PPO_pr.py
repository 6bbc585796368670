"""PPO from a prioritized pool with its environments in several processes; see
`tandem.examples.keras.PPO_pr`.

KERAS_BACKEND=jax python -m tandem.examples.keras.pool_network.PPO_pr
"""

from __future__ import annotations

import gymnasium
import keras

from tandem.examples.keras import PPO as basic
from tandem.examples.keras import PPO_pr as single


class PPO(single.PPO):
    def __init__(
        self,
        state_dim: int,
        hidden_dim: int,
        action_dim: int,
        clip_eps: float,
        alpha: float,
        processes: int = 1,
    ) -> None:
        super().__init__(state_dim, hidden_dim, action_dim, clip_eps, alpha)
        self.env = [gymnasium.make("CartPole-v1") for _ in range(processes)]


def main(seed: int = 0, episodes: int = 1000, processes: int = 4) -> PPO:
    keras.utils.set_random_seed(seed)
    model = PPO(4, 128, 2, 0.2, 0.01, processes)
    basic.train(model, seed, episodes, processes, PR=True)
    return model


if __name__ == "__main__":
    main()
