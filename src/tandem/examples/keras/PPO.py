"""PPO (Schulman et al. 2017, arXiv:1707.06347) on CartPole, in Keras: the clipped objective of
equation 7, with one-step advantages.

KERAS_BACKEND=jax python -m tandem.examples.keras.PPO
"""

from __future__ import annotations

from typing import Any

import gymnasium
import keras
from keras import layers, ops

from tandem.agents.rl import RL, assign_param
from tandem.exploration import SoftmaxPolicy


class PPO(RL):
    def __init__(
        self, state_dim: int, hidden_dim: int, action_dim: int, clip_eps: float, alpha: float
    ) -> None:
        """alpha: how much the entropy counts."""
        super().__init__()
        self.actor, self.old_actor = (
            keras.Sequential(
                [
                    keras.Input((state_dim,)),
                    layers.Dense(hidden_dim, "relu"),
                    layers.Dense(action_dim, "softmax"),
                ]
            )
            for _ in range(2)
        )
        self.critic = keras.Sequential(
            [keras.Input((state_dim,)), layers.Dense(hidden_dim, "relu"), layers.Dense(1)]
        )
        self.update_param()
        self.param = [self.actor.weights, self.critic.weights]
        self.env = gymnasium.make("CartPole-v1")
        self.clip_eps, self.alpha, self.gamma = clip_eps, alpha, 0.98

    def action(self, s: Any) -> Any:
        return self.old_actor(s)

    def losses(self, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> tuple[Any, Any, Any]:
        """Returns (the actor's loss, the critic's error, ratios of probabilities), each [B]."""
        target = ops.stop_gradient(r + self.gamma * (1 - d) * self.critic(next_s)[:, 0])
        TD = target - self.critic(s)[:, 0]
        advantage, prob = ops.stop_gradient(TD), self.actor(s)
        ratio = ops.take_along_axis(prob / self.old_actor(s), a[:, None], 1)[:, 0]
        clipped = ops.clip(ratio, 1 - self.clip_eps, 1 + self.clip_eps)
        entropy = -ops.sum(prob * ops.log(prob + 1e-8), 1)
        actor_loss = -ops.minimum(ratio * advantage, clipped * advantage) - self.alpha * entropy
        return actor_loss, TD, ratio

    def __call__(self, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> Any:
        actor_loss, TD, _ = self.losses(s, a, next_s, r, d)
        return [ops.mean(actor_loss), ops.mean(TD**2)]

    def update_param(self) -> None:
        assign_param(self.old_actor.weights, self.actor.weights)


def main(seed: int = 0, episodes: int = 1000) -> PPO:
    keras.utils.set_random_seed(seed)
    model = PPO(4, 128, 2, 0.2, 0.01)
    train(model, seed, episodes)
    return model


def train(
    model: PPO, seed: int, episodes: int, processes: int | None = None, **settings: Any
) -> None:
    """Trains this agent, or one that is based on it, until the mean return of ten episodes is
    475."""
    model.seed = seed
    model.set(
        policy=SoftmaxPolicy(),
        pool_size=10000,
        batch=64,
        update_steps=1000,
        trial_count=10,
        criterion=475,
        PPO=True,
        **settings,
    )
    optimizers = [keras.optimizers.Adam(1e-3), keras.optimizers.Adam(5e-3)]
    model.train(keras.metrics.Mean(), optimizers, episodes, processes=processes)


if __name__ == "__main__":
    main()
