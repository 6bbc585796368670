"""DQN (Mnih et al. 2015, doi:10.1038/nature14236) on CartPole, in Keras.

KERAS_BACKEND=jax python -m tandem.examples.keras.DQN
"""

from __future__ import annotations

from typing import Any

import gymnasium
import keras
from keras import layers, ops

from tandem.agents.rl import RL, assign_param
from tandem.exploration import AdaptiveEpsGreedyPolicy


class DQN(RL):
    def __init__(self, state_dim: int, hidden_dim: int, action_dim: int) -> None:
        super().__init__()
        self.q_net, self.target_q_net = (
            keras.Sequential(
                [
                    keras.Input((state_dim,)),
                    layers.Dense(hidden_dim, "relu"),
                    layers.Dense(action_dim),
                ]
            )
            for _ in range(2)
        )
        self.param = self.q_net.weights
        self.env = gymnasium.make("CartPole-v1")
        self.gamma = 0.98

    def action(self, s: Any) -> Any:
        return self.q_net(s)

    def __call__(self, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> Any:
        q_value = ops.take_along_axis(self.q_net(s), a[:, None], 1)[:, 0]
        target = ops.stop_gradient(r + self.gamma * (1 - d) * ops.max(self.target_q_net(next_s), 1))
        TD = q_value - target
        self.prioritized_replay.update(TD)  # what PR=True draws by
        return ops.mean(TD**2)

    def update_param(self) -> None:
        assign_param(self.target_q_net.weights, self.q_net.weights)


def main(seed: int = 0, episodes: int = 1000) -> DQN:
    keras.utils.set_random_seed(seed)
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
    optimizer = keras.optimizers.Adam(5e-4)
    model.train(keras.metrics.Mean(), optimizer, episodes, processes=processes)


if __name__ == "__main__":
    main()
