"""DDPG with hindsight experience replay (Andrychowicz et al. 2017, arXiv:1707.01495) in a world of
points, in Keras.

KERAS_BACKEND=jax python -m tandem.examples.keras.DDPG_HER
"""

from __future__ import annotations

from typing import Any

import keras
from keras import layers, ops

from tandem.agents.rl import RL, assign_param
from tandem.examples.worlds import PointWorld
from tandem.exploration import GaussianWhiteNoiseProcess


class DDPG(RL):
    """Networks see state and goal side by side. sigma: how far noise of deviation 1 moves the
    point. The actor's outputs before the tanh cost a little, as in the paper's appendix A: critics
    that know nothing yet would drive them to where it is flat."""

    def __init__(self, hidden_dim: int, sigma: float, gamma: float, tau: float) -> None:
        super().__init__()
        self.env = PointWorld(sigma)
        self.sigma, self.gamma, self.tau = sigma, gamma, tau
        self.actor, self.target_actor = (
            keras.Sequential(
                [keras.Input((2 + 2,)), layers.Dense(hidden_dim, "relu"), layers.Dense(2)]
            )
            for _ in range(2)
        )
        self.critic, self.target_critic = (
            keras.Sequential(
                [keras.Input((2 + 2 + 2,)), layers.Dense(hidden_dim, "relu"), layers.Dense(1)]
            )
            for _ in range(2)
        )
        self.param = [self.actor.weights, self.critic.weights]
        self.target_param = [*self.target_actor.weights, *self.target_critic.weights]
        assign_param(self.target_param, self.param)

    def reward_done_func(self, next_state: Any, goal: Any) -> Any:
        return self.env.judge(next_state, goal)

    def action(self, s: Any) -> Any:
        return ops.tanh(self.actor(s)) / self.sigma

    def __call__(self, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> Any:
        z = self.actor(s)
        actor_loss = -ops.mean(self.critic(ops.concatenate([s, ops.tanh(z)], 1))) + 0.01 * ops.mean(
            z**2
        )
        next_q = self.target_critic(
            ops.concatenate([next_s, ops.tanh(self.target_actor(next_s))], 1)
        )[:, 0]
        target = ops.stop_gradient(r + self.gamma * (1 - d) * next_q)
        critic_loss = ops.mean(
            (self.critic(ops.concatenate([s, a * self.sigma], 1))[:, 0] - target) ** 2
        )
        return [actor_loss, critic_loss]

    def update_param(self) -> None:
        assign_param(self.target_param, self.param, self.tau)


def main(seed: int = 0) -> DDPG:
    keras.utils.set_random_seed(seed)
    model = DDPG(128, 0.1, 0.98, 0.005)
    model.seed = seed
    model.set(
        noise=GaussianWhiteNoiseProcess(),
        pool_size=10000,
        batch=256,
        criterion=-5,
        trial_count=10,
        HER=True,
    )
    model.train(keras.metrics.Mean(), [keras.optimizers.Adam(), keras.optimizers.Adam()], 2000)
    return model


if __name__ == "__main__":
    main()
