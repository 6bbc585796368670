"""DDPG with hindsight on FetchReach: an arm learns to put its hand where it is told, in Keras.

pip install 'tandem-rl[robotics]'
KERAS_BACKEND=jax python -m tandem.examples.keras.DDPG_FetchReach

Observations are Gymnasium-Robotics' Dicts, and the environment itself says by compute_reward what
another goal had been worth.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from tandem.examples.keras import DDPG as basic
from tandem.examples.worlds import fetch_reach, success
from tandem.exploration import GaussianWhiteNoiseProcess


class DDPG(basic.DDPG):
    """Networks see the observation and the desired goal side by side: 10 and 3 numbers. sigma: of
    the noise, in units of the widest action."""

    state_dim, action_dim = 10 + 3, 4

    def make_env(self) -> Any:
        return fetch_reach()

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


def near(s: Any) -> Any:
    """The goal as seen from the hand, in units of 0.1 m: goals are within 0.15 m of where the hand
    begins."""
    return ops.concatenate([s[:, :10], (s[:, 10:] - s[:, :3]) * 10], 1)


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
