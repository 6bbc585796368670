"""An environment of any spaces, and actors without a network."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from tandem.types import leaves


class Made(gymnasium.Env[Any, Any]):
    """Draws what it shows, pays the step, ends after `length` (truncates with odd seeds)."""

    def __init__(self, observation, action=None, length: int = 5, info=None) -> None:
        self.observation_space = deepcopy(observation)  # each has random numbers of its own
        self.action_space = spaces.Discrete(3) if action is None else action
        self.length, self.info, self.t, self.odd = length, info or {}, 0, False
        self.log: list[tuple[list[Any], list[Any]]] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.t, self.odd = 0, bool((seed or 0) % 2)
        self.log.append(([self.observation_space.sample()], []))
        return self.log[-1][0][-1], self.info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), f"{action!r} is not in {self.action_space}"
        self.t += 1
        seen, taken = self.log[-1]
        seen.append(self.observation_space.sample())
        taken.append(action)
        over = self.t >= self.length
        return seen[-1], float(self.t), over and not self.odd, over and self.odd, self.info


class Acts:  # acts by a function of what is seen and of its noise
    def __init__(self, by: Callable[[Any, Any], Any]) -> None:
        self.by = by

    def initial_state(self, n: int) -> Any:
        return ()

    def act(self, obs: Any, state: Any, noise: Any) -> Any:
        return self.by(obs, noise), {}, state


def assert_same(one: Any, other: Any) -> None:
    """Trees of the same arrays, to the bit."""
    for x, y in zip(leaves(one), leaves(other), strict=True):
        x, y = np.asarray(x), np.asarray(y)
        assert (x.dtype, x.shape) == (y.dtype, y.shape) and x.tobytes() == y.tobytes()


def always(action: Any) -> Acts:
    """An actor that sees arrays, and always takes this action."""
    return Acts(lambda obs, noise: np.array([action] * len(obs)))
