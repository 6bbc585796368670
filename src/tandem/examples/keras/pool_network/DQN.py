"""DQN with its environments in several processes; see `tandem.examples.keras.DQN`.

KERAS_BACKEND=jax python -m tandem.examples.keras.pool_network.DQN
"""

from __future__ import annotations

import gymnasium
import keras

from tandem.examples.keras import DQN as single


class DQN(single.DQN):
    def __init__(
        self, state_dim: int, hidden_dim: int, action_dim: int, processes: int = 1
    ) -> None:
        super().__init__(state_dim, hidden_dim, action_dim)
        self.env = [gymnasium.make("CartPole-v1") for _ in range(processes)]


def main(seed: int = 0, episodes: int = 1000, processes: int = 4) -> DQN:
    keras.utils.set_random_seed(seed)
    model = DQN(4, 128, 2, processes)
    single.train(model, seed, episodes, processes, update_batches=100)
    return model


if __name__ == "__main__":
    main()
