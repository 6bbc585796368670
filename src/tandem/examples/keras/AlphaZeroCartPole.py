"""AlphaZero (Silver et al. 2018, doi:10.1126/science.aar6404) on CartPole, in Keras: a search led
by a policy and a value, which learn what it found.

KERAS_BACKEND=jax python -m tandem.examples.keras.AlphaZeroCartPole

The value of a state is -gamma ** (steps until the pole falls): 0 where it never does, -1 where it
does at once. It is learned from what ten steps show.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import layers, ops

from tandem.agents.rl import RL
from tandem.examples.cartpole_search import CartPoleSearch


class AlphaZero(CartPoleSearch, RL):
    jit_action = False  # it searches

    def __init__(
        self,
        state_dim: int,
        hidden_dim: int,
        action_dim: int,
        num_simulations: int = 400,
        c_puct: float = 2.0,
    ) -> None:
        super().__init__(num_simulations, c_puct)
        body = [
            keras.Input((state_dim,)),
            layers.Dense(hidden_dim, "relu"),
            layers.Dense(hidden_dim, "relu"),
        ]
        self.net = keras.Sequential([*body, layers.Dense(action_dim + 1)])
        self.param = self.net.weights

    def forward(self, s: Any) -> tuple[Any, Any]:
        out = self.net(s)
        return out[:, :-1], ops.tanh(out[:, -1])

    def evaluate(self, state: Any) -> tuple[list[tuple[int, float]], float]:
        out = self.net.predict_on_batch(np.asarray(state[None], np.float32))[0].astype(float)
        share = np.exp(out[:-1] - out[:-1].max())
        return list(enumerate((share / share.sum()).tolist())), float(np.tanh(out[-1]))

    def __call__(self, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> Any:
        shares, _ = a
        logits, value = self.forward(s)
        target = ops.stop_gradient(
            (1 - self.gamma) * r - 1 + (1 - d) * self.gamma * (self.forward(next_s)[1] + 1)
        )
        l2 = sum(ops.sum(p**2) for p in self.net.trainable_weights)
        policy = -ops.mean(ops.sum(shares * ops.log_softmax(logits, 1), 1))
        return policy + ops.mean((value - target) ** 2) + self.weight_decay * l2


def main(seed: int = 0) -> AlphaZero:
    """Trains until the mean return of five episodes is 475."""
    keras.utils.set_random_seed(seed)
    model = AlphaZero(4, 64, 2, num_simulations=25, c_puct=0.03)
    model.seed = seed
    model.set(
        pool_size=10000,
        batch=64,
        num_updates=2,
        num_steps=10,
        IRL=True,
        trial_count=5,
        criterion=475,
    )
    model.train(keras.metrics.Mean(), keras.optimizers.Adam(1e-3), 100)
    return model


if __name__ == "__main__":
    main()
