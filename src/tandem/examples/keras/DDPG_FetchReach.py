"""DDPG with hindsight on FetchReach: an arm learns to put its hand where it is told, in Keras.

pip install 'tandem-rl[robotics]' KERAS_BACKEND=jax python -m tandem.examples.keras.DDPG_FetchReach

Observations are Gymnasium-Robotics' Dicts, and the environment itself says by compute_reward what
another goal had been worth.
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
    """Networks see the observation and the desired goal side by side: 10 and 3 numbers. sigma: of
    the noise, in units of the widest action."""

    def __init__(self, hidden_dim: int, sigma: float, gamma: float, tau: float) -> None:
        super().__init__()
        self.env = fetch_reach()
        self.sigma, self.gamma, self.tau = sigma, gamma, tau
        self.actor, self.target_actor = (
            keras.Sequential(
                [keras.Input((13,)), layers.Dense(hidden_dim, "relu"), layers.Dense(4)]
            )
            for _ in range(2)
        )
        self.critic, self.target_critic = (
            keras.Sequential(
                [keras.Input((13 + 4,)), layers.Dense(hidden_dim, "relu"), layers.Dense(1)]
            )
            for _ in range(2)
        )
        self.param = [self.actor.weights, self.critic.weights]
        self.target_param = [*self.target_actor.weights, *self.target_critic.weights]
        assign_param(self.target_param, self.param)

    def action(self, s: Any) -> Any:
        return ops.tanh(self.actor(near(s)))

    def __call__(self, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> Any:
        s, next_s = near(s), near(next_s)
        z = self.actor(s)
        actor_loss = -ops.mean(self.critic(ops.concatenate([s, ops.tanh(z)], 1))) + 0.01 * ops.mean(
            z**2
        )
        next_q = self.target_critic(
            ops.concatenate([next_s, ops.tanh(self.target_actor(next_s))], 1)
        )[:, 0]
        target = ops.stop_gradient(r + self.gamma * (1 - d) * next_q)
        critic_loss = ops.mean((self.critic(ops.concatenate([s, a], 1))[:, 0] - target) ** 2)
        return [actor_loss, critic_loss]

    def update_param(self) -> None:
        assign_param(self.target_param, self.param, self.tau)


def near(s: Any) -> Any:
    """The goal as seen from the hand, in units of 0.1 m: goals are within 0.15 m of where the hand
    begins."""
    return ops.concatenate([s[:, :10], (s[:, 10:] - s[:, :3]) * 10], 1)


def fetch_reach() -> Any:
    import gymnasium_robotics

    gymnasium.register_envs(gymnasium_robotics)
    return gymnasium.make("FetchReach-v4")


def success(model: Any, episodes: int = 20) -> float:
    """The share of episodes at whose end the hand is where it should be."""
    ends = []
    for seed in range(episodes):
        last = model.run_agent(50, seed)[0][-1]
        ends.append(np.linalg.norm(last["achieved_goal"] - last["desired_goal"]) < 0.05)
    return float(np.mean(ends))


def main(seed: int = 0) -> DDPG:
    keras.utils.set_random_seed(seed)
    model = DDPG(128, 0.2, 0.98, 0.005)
    model.seed = seed
    model.set(
        noise=GaussianWhiteNoiseProcess(sigma=model.sigma),
        pool_size=20000,
        batch=256,
        trial_count=10,
        HER=True,
    )
    model.train(keras.metrics.Mean(), [keras.optimizers.Adam(), keras.optimizers.Adam()], 100)
    print(f"success in twenty episodes: {success(model):.2f}")
    return model


if __name__ == "__main__":
    main()
