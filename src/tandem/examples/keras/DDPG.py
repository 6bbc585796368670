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


def network(inputs: int, hidden_dim: int, outputs: int) -> Any:
    return keras.Sequential(
        [keras.Input((inputs,)), layers.Dense(hidden_dim, "relu"), layers.Dense(outputs)]
    )


class DDPG(RL):
    """sigma: of the noise that explores, in units of torque."""

    state_dim, action_dim, bound = 3, 1, 2.0

    def __init__(self, hidden_dim: int, sigma: float, gamma: float, tau: float) -> None:
        super().__init__()
        self.sigma, self.gamma, self.tau = sigma, gamma, tau
        self.env = self.make_env()
        self.actor, self.target_actor = (
            network(self.state_dim, hidden_dim, self.action_dim) for _ in range(2)
        )
        self.critic, self.target_critic = (
            network(self.state_dim + self.action_dim, hidden_dim, 1) for _ in range(2)
        )
        self.param = [self.actor.weights, self.critic.weights]
        self.target_param = [*self.target_actor.weights, *self.target_critic.weights]
        assign_param(self.target_param, self.param)

    def make_env(self) -> Any:
        return gymnasium.make("Pendulum-v1")

    def action(self, s: Any) -> Any:
        return self.bound * ops.tanh(self.actor(s))

    def __call__(self, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> Any:
        actor_loss = -ops.mean(self.critic(ops.concatenate([s, self.action(s)], 1)))
        next_a = self.bound * ops.tanh(self.target_actor(next_s))
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
    train(model, seed)
    return model


def train(model: DDPG, seed: int, processes: int | None = None) -> None:
    model.seed = seed
    noise = GaussianWhiteNoiseProcess(sigma=model.sigma)
    model.set(noise=noise, pool_size=10000, batch=64, criterion=-150, trial_count=30)
    optimizers = [keras.optimizers.Adam(3e-4), keras.optimizers.Adam(3e-3)]
    model.train(keras.metrics.Mean(), optimizers, 150, processes=processes)
    returns = [model.run_agent(200, i)[1] for i in range(10)]
    print(f"mean return of ten episodes: {np.mean(returns):.0f}")


if __name__ == "__main__":
    main()
