"""A Keras agent that learns values of CartPole's actions, for several snippets."""

from typing import Any

import gymnasium
import keras
import numpy as np
from keras import layers, ops

from tandem import RL, assign_param
from tandem.backends import variables
from tandem.errors import TandemError


class Q(RL):
    def __init__(self, *more: Any) -> None:
        super().__init__()
        keras.utils.set_random_seed(0)
        self.q, self.target = (
            keras.Sequential([keras.Input((4,)), layers.Dense(8, "tanh"), *extra, layers.Dense(2)])
            for extra in ([m() for m in more] for _ in range(2))
        )
        self.param, self.env, self.gamma = self.q.weights, gymnasium.make("CartPole-v1"), 0.9

    def action(self, s: Any) -> Any:
        return self.q(s)

    def errors(self, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> Any:
        value = ops.take_along_axis(self.q(s, training=True), a[:, None], 1)[:, 0]
        best = ops.max(self.target(next_s), 1)
        return value - ops.stop_gradient(r + self.gamma * (1 - d) * best)

    def __call__(self, *batch: Any) -> Any:
        TD = self.errors(*batch)
        self.prioritized_replay.update(TD)
        return ops.mean(TD**2)

    def update_param(self) -> None:
        assign_param(self.target.weights, self.q.weights)


def apart(a: Any, b: Any) -> float:
    """How far two agents' weights, lists of variables or lists of arrays are."""
    lists = [variables.flat(x.param) if isinstance(x, RL) else x for x in (a, b)]
    arrays = [x if isinstance(x[0], np.ndarray) else variables.read(x) for x in lists]
    return float(max(abs(x - y).max() for x, y in zip(*arrays, strict=True)))


def refusal(function: Any) -> str:
    try:
        function()
    except TandemError as error:
        return f"{type(error).__name__}: {error} | {error.happened} | {error.fix}"
    return "none"
