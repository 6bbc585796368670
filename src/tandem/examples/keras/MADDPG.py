"""MADDPG (Lowe et al. 2017, arXiv:1706.02275): each agent has an actor of its own state, and a
critic of all states and actions, in Keras.

KERAS_BACKEND=jax python -m tandem.examples.keras.MADDPG
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import layers, ops

from tandem.agents.rl import RL, assign_param
from tandem.examples.worlds import Relay
from tandem.exploration import SoftmaxPolicy


class DDPG(RL):
    """Expectations over actions are sums over the four joint ones: nothing has to be sampled or
    relaxed in a loss.

    alone: critics see the state and the action of their own agent only, which makes this
      independent DDPG.
    """

    def __init__(
        self, hidden_dim: int, sigma: float, gamma: float, tau: float, alone: bool = False
    ) -> None:
        super().__init__()
        self.env = Relay()
        # probabilities explore, so sigma is not used
        self.sigma = sigma
        self.gamma = gamma
        self.tau = tau
        self.alone = alone
        # [4 joint actions, 2 agents, 2]
        self.joint = np.eye(2, dtype=np.float32)[[[0, 0], [0, 1], [1, 0], [1, 1]]]
        seen = 4 + 2 if alone else 2 * (4 + 2)
        self.actors, self.target_actors = (
            [
                keras.Sequential(
                    [
                        keras.Input((4,)),
                        layers.Dense(hidden_dim, "relu"),
                        layers.Dense(2, "softmax"),
                    ]
                )
                for _ in range(2)
            ]
            for _ in range(2)
        )
        self.critics, self.target_critics = (
            [
                keras.Sequential(
                    [keras.Input((seen,)), layers.Dense(hidden_dim, "relu"), layers.Dense(1)]
                )
                for _ in range(2)
            ]
            for _ in range(2)
        )
        self.param, self.target_param = (
            [[w for net in nets for w in net.weights] for nets in pair]
            for pair in ((self.actors, self.critics), (self.target_actors, self.target_critics))
        )
        assign_param(self.target_param, self.param)

    def reward_done_func_ma(self, r: Any, d: Any) -> Any:
        return np.mean(r), all(d)

    def action(self, s: Any, i: int) -> Any:
        return self.actors[i](s)

    def value(self, critics: Any, i: int, s: Any, a: Any) -> Any:
        """What agent i expects, [B], of states [B, 2, 4] and actions [B, 2, 2]."""
        both = ops.concatenate([s, a], 2)
        return critics[i](both[:, i] if self.alone else ops.reshape(both, (-1, 12)))[:, 0]

    def values(self, critics: Any, i: int, s: Any) -> Any:
        """That of each joint action, [B, 4]."""
        joint = ops.tile(self.joint, (ops.shape(s)[0], 1, 1))
        return ops.reshape(self.value(critics, i, ops.repeat(s, 4, 0), joint), (-1, 4))

    def likely(self, actors: Any, s: Any, learns: int | None = None) -> Any:
        """The probability of each joint action, [B, 4]; gradients go to the actor of one agent
        only."""
        p = [
            actor(s[:, i]) if i == learns else ops.stop_gradient(actor(s[:, i]))
            for i, actor in enumerate(actors)
        ]
        return ops.reshape(p[0][:, :, None] * p[1][:, None, :], (-1, 4))

    def __call__(self, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> Any:
        actor_loss, critic_loss, a = 0.0, 0.0, ops.one_hot(a, 2)
        for i in range(2):
            actor_loss -= ops.mean(
                ops.sum(self.likely(self.actors, s, i) * self.values(self.critics, i, s), 1)
            )
            next_q = ops.sum(
                self.likely(self.target_actors, next_s)
                * self.values(self.target_critics, i, next_s),
                1,
            )
            target = ops.stop_gradient(r + self.gamma * (1 - d) * next_q)
            critic_loss += ops.mean((self.value(self.critics, i, s, a) - target) ** 2)
        return [actor_loss, critic_loss]

    def update_param(self) -> None:
        assign_param(self.target_param, self.param, self.tau)


def main(seed: int = 0, alone: bool = False) -> DDPG:
    keras.utils.set_random_seed(seed)
    model = DDPG(128, 0.1, 0.98, 0.005, alone)
    train(model, seed)
    return model


def train(model: DDPG, seed: int, processes: int | None = None) -> None:
    model.seed = seed
    model.set(policy=SoftmaxPolicy(), pool_size=3000, batch=32, trial_count=10, MARL=True)
    optimizers = [keras.optimizers.Adam(), keras.optimizers.Adam()]
    model.train(keras.metrics.Mean(), optimizers, 100, processes=processes)


if __name__ == "__main__":
    main()
