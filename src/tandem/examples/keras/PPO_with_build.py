"""PPO whose acting network is made by `build()`, only where it acts: with environments in several
processes nothing of the agent travels. See `tandem.examples.keras.PPO`.

KERAS_BACKEND=jax python -m tandem.examples.keras.PPO_with_build
"""

from __future__ import annotations

from typing import Any

import gymnasium
import keras
from keras import layers

from tandem.agents.rl import RL
from tandem.examples.keras import PPO as basic


class PPO(basic.PPO):
    """`shared_param` are the weights that the acting network takes over, at first and after each
    `update_param`."""

    def __init__(
        self,
        state_dim: int,
        hidden_dim: int,
        action_dim: int,
        clip_eps: float,
        alpha: float,
        processes: int = 1,
    ) -> None:
        RL.__init__(self)
        self.state_dim, self.hidden_dim, self.action_dim = state_dim, hidden_dim, action_dim
        self.actor = self.policy_network()
        self.critic = keras.Sequential(
            [keras.Input((state_dim,)), layers.Dense(hidden_dim, "relu"), layers.Dense(1)]
        )
        self.param = [self.actor.weights, self.critic.weights]
        self.shared_param = self.actor.weights
        self.env = [gymnasium.make("CartPole-v1") for _ in range(processes)]
        self.clip_eps, self.alpha, self.gamma = clip_eps, alpha, 0.98

    def policy_network(self) -> Any:
        return keras.Sequential(
            [
                keras.Input((self.state_dim,)),
                layers.Dense(self.hidden_dim, "relu"),
                layers.Dense(self.action_dim, "softmax"),
            ]
        )

    def build(self) -> None:
        self.old_actor = self.policy_network()

    def update_param(self) -> None:
        """The acting network takes over `shared_param` by itself."""


def main(seed: int = 0, episodes: int = 1000, processes: int = 2) -> PPO:
    keras.utils.set_random_seed(seed)
    model = PPO(4, 128, 2, 0.2, 0.01, processes)
    basic.train(model, seed, episodes, processes)
    return model


if __name__ == "__main__":
    main()
