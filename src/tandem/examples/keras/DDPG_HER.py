"""DDPG with hindsight experience replay (Andrychowicz et al. 2017, arXiv:1707.01495) in a world of
points, in Keras.

KERAS_BACKEND=jax python -m tandem.examples.keras.DDPG_HER
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from tandem.examples.keras import DDPG as basic
from tandem.examples.worlds import PointWorld
from tandem.exploration import GaussianWhiteNoiseProcess


class DDPG(basic.DDPG):
    """Networks see state and goal side by side. sigma: how far noise of deviation 1 moves the
    point. The actor's outputs before the tanh cost a little, as in the paper's appendix A: critics
    that know nothing yet would drive them to where it is flat."""

    state_dim, action_dim = 2 + 2, 2

    def make_env(self) -> Any:
        return PointWorld(self.sigma)

    def reward_done_func(self, next_state: Any, goal: Any) -> Any:
        return PointWorld.judge(next_state, goal)

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


def main(seed: int = 0) -> DDPG:
    keras.utils.set_random_seed(seed)
    model = DDPG(128, 0.1, 0.98, 0.005)
    train(model, seed)
    return model


def train(model: DDPG, seed: int, processes: int | None = None) -> None:
    model.seed = seed
    model.set(
        noise=GaussianWhiteNoiseProcess(),
        pool_size=10000,
        batch=256,
        criterion=-5,
        trial_count=10,
        HER=True,
    )
    optimizers = [keras.optimizers.Adam(), keras.optimizers.Adam()]
    model.train(keras.metrics.Mean(), optimizers, 2000, processes=processes)


if __name__ == "__main__":
    main()
