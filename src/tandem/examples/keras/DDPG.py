"""DDPG (Lillicrap et al. 2016, arXiv:1509.02971) on Pendulum, in Keras.

KERAS_BACKEND=jax python -m tandem.examples.keras.DDPG
"""

from __future__ import annotations

from typing import Any

import gymnasium
import keras
import numpy as np
from keras import layers, ops

from tandem.agents.rl import RL, assign_param
from tandem.exploration import GaussianWhiteNoiseProcess


class DDPG(RL):
    """sigma: of the noise that explores, in units of torque."""

    def __init__(self, hidden_dim: int, sigma: float, gamma: float, tau: float) -> None:
        super().__init__()
        self.env = gymnasium.make("Pendulum-v1")
        self.sigma, self.gamma, self.tau, self.bound = sigma, gamma, tau, 2.0
        self.actor, self.target_actor = (
            keras.Sequential(
                [keras.Input((3,)), layers.Dense(hidden_dim, "relu"), layers.Dense(1, "tanh")]
            )
            for _ in range(2)
        )
        self.critic, self.target_critic = (
            keras.Sequential(
                [keras.Input((3 + 1,)), layers.Dense(hidden_dim, "relu"), layers.Dense(1)]
            )
            for _ in range(2)
        )
        self.param = [self.actor.weights, self.critic.weights]
        self.target_param = [*self.target_actor.weights, *self.target_critic.weights]
        assign_param(self.target_param, self.param)

    def action(self, s: Any) -> Any:
        return self.bound * self.actor(s)

    def __call__(self, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> Any:
        actor_loss = -ops.mean(self.critic(ops.concatenate([s, self.action(s)], 1)))
        next_a = self.bound * self.target_actor(next_s)
        target = (
            r
            + self.gamma * (1 - d) * self.target_critic(ops.concatenate([next_s, next_a], 1))[:, 0]
        )
        critic_loss = ops.mean(
            (self.critic(ops.concatenate([s, a], 1))[:, 0] - ops.stop_gradient(target)) ** 2
        )
        return [actor_loss, critic_loss]

    def update_param(self) -> None:
        assign_param(self.target_param, self.param, self.tau)


def main(seed: int = 0) -> DDPG:
    keras.utils.set_random_seed(seed)
    model = DDPG(128, 0.2, 0.98, 0.005)
    model.seed = seed
    noise = GaussianWhiteNoiseProcess(sigma=model.sigma)
    model.set(noise=noise, pool_size=10000, batch=64, criterion=-170, trial_count=30)
    model.train(
        keras.metrics.Mean(), [keras.optimizers.Adam(3e-4), keras.optimizers.Adam(3e-3)], 150
    )
    print(
        "mean return of ten episodes: "
        f"{np.mean([model.run_agent(200, i)[1] for i in range(10)]):.0f}"
    )
    return model


if __name__ == "__main__":
    main()
