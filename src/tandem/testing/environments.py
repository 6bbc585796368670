"""Environments with closed-form solutions, and some that violate the interface, for testing agents.

Importing this module registers them with Gymnasium as `tandem/<Class>-v0`; tandem imports it for
such ids. `optimum` is the highest expected score of an episode; `value(gamma)` is the value of the
optimal policy, at the first state or at each state. Time limits are never observed, and values are
those of the task without the limit. An agent learns them only if it bootstraps where episodes were
truncated, and not where they terminated.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Literal

import gymnasium
import numpy as np
from gymnasium import spaces

from tandem.types import AnyArray, Info, Tree

Array = AnyArray
Action = int | np.int64 | AnyArray


class Game(gymnasium.Env[Tree, Action]):
    """Base class: a reward for each action, a state, and a step limit."""

    observation_space: spaces.Space
    action_space: spaces.Space
    length = 10  # episodes are truncated after this many steps
    t = 0

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Tree, Info]:
        super().reset(seed=seed)
        self.t = 0
        self.begin()
        return self.observe(), {}

    def step(self, action: Action) -> tuple[Tree, float, bool, bool, Info]:
        self.t += 1
        reward, terminated = self.play(action)
        return self.observe(), reward, terminated, self.t >= self.length and not terminated, {}

    def begin(self) -> None:
        """Sample the first state."""

    def observe(self) -> Tree:
        raise NotImplementedError

    def play(self, action: Action) -> tuple[float, bool]:
        """Apply the action and return (reward, terminated)."""
        raise NotImplementedError


class Identity(Game):
    """Choose the observed symbol: reward 1 if right, else 0; the next symbol is sampled uniformly;
    truncated after `length` steps.

    optimum = length; value = 1 / (1 - gamma). `start` is the first symbol of both Discrete(n)
    spaces.
    """

    def __init__(self, n: int = 4, length: int = 10, start: int = 0) -> None:
        self.length, self.optimum = length, float(length)
        self.observation_space = self.action_space = spaces.Discrete(n, start=start)
        self.symbol = start

    def begin(self) -> None:
        self.symbol = int(self.np_random.integers(self.action_space.n)) + int(
            self.action_space.start
        )

    def observe(self) -> Tree:
        return np.int64(self.symbol)

    def play(self, action: Action) -> tuple[float, bool]:
        reward = float(action == self.symbol)
        self.begin()
        return reward, False

    def value(self, gamma: float) -> float:
        return 1 / (1 - gamma)


class IdentityDict(Identity):
    """`Identity` with the symbol in a nested Dict, next to a box of irrelevant noise."""

    def __init__(self, n: int = 4, length: int = 10) -> None:
        super().__init__(n, length)
        noise = spaces.Box(-1, 1, (2,), np.float32)
        self.observation_space = spaces.Dict(
            {"noise": noise, "inner": spaces.Dict({"symbol": spaces.Discrete(n)})}
        )

    def observe(self) -> Tree:
        return {
            "noise": self.np_random.uniform(-1, 1, 2).astype(np.float32),
            "inner": {"symbol": np.int64(self.symbol)},
        }


class IdentityImage(Identity):
    """`Identity` with the symbol as a white band in a black image, uint8 [side, side, 1]: band k of
    n from the top."""

    def __init__(self, n: int = 4, length: int = 10, side: int = 36) -> None:
        super().__init__(n, length)
        self.observation_space = spaces.Box(0, 255, (side, side, 1), np.uint8)
        self.band = side // n

    def observe(self) -> Tree:
        picture = np.zeros(self.observation_space.shape, np.uint8)
        picture[self.symbol * self.band : (self.symbol + 1) * self.band] = 255
        return picture


class IdentityMultiDiscrete(Identity):
    """Choose every observed symbol: the reward is the fraction of right ones; truncated after
    `length` steps.

    optimum = length; value = 1 / (1 - gamma).
    """

    def __init__(self, sizes: Sequence[int] = (3, 2), length: int = 10) -> None:
        self.length, self.optimum = length, float(length)
        self.observation_space = self.action_space = spaces.MultiDiscrete(list(sizes))
        self.symbols: Array = np.zeros(len(sizes), np.int64)

    def begin(self) -> None:
        self.symbols = self.np_random.integers(0, self.action_space.nvec)

    def observe(self) -> Tree:
        return self.symbols.copy()

    def play(self, action: Action) -> tuple[float, bool]:
        reward = float(np.mean(action == self.symbols))
        self.begin()
        return reward, False


class Forbidden(Identity):
    """Choose the successor of the observed symbol (after the last, the first): reward 1 if right,
    else 0. The symbol itself is invalid according to `info["action_mask"]`; choosing it raises
    ValueError, or pays 10 if `raises` is False.

    optimum = length, without invalid actions; value = 1 / (1 - gamma).
    """

    def __init__(self, n: int = 4, length: int = 10, raises: bool = True) -> None:
        super().__init__(n, length)
        self.raises = raises

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Tree, Info]:
        obs, _ = super().reset(seed=seed, options=options)
        return obs, {"action_mask": self.mask()}

    def step(self, action: Action) -> tuple[Tree, float, bool, bool, Info]:
        obs, reward, terminated, truncated, _ = super().step(action)
        return obs, reward, terminated, truncated, {"action_mask": self.mask()}

    def mask(self) -> Array:
        """Return the mask, int8 [n]: 0 for the observed symbol."""
        return np.array(np.arange(self.action_space.n) != self.symbol, np.int8)

    def play(self, action: Action) -> tuple[float, bool]:
        if action == self.symbol and self.raises:
            raise ValueError(f"the invalid action {action} was taken")
        reward = (
            10.0
            if action == self.symbol
            else float(action == (self.symbol + 1) % self.action_space.n)
        )
        self.begin()
        return reward, False


class ForbiddenMultiDiscrete(IdentityMultiDiscrete):
    """`Forbidden` with several symbols at a time, and masks in a Dict observation. The reward is
    the fraction of right ones, and choosing an observed symbol at its position raises ValueError.
    """

    def __init__(self, sizes: Sequence[int] = (3, 2), length: int = 10) -> None:
        super().__init__(sizes, length)
        self.observation_space = spaces.Dict(
            {"symbols": self.action_space, "action_mask": spaces.Box(0, 1, (sum(sizes),), np.int8)}
        )

    def observe(self) -> Tree:
        parts = [
            np.arange(n) != s for n, s in zip(self.action_space.nvec, self.symbols, strict=True)
        ]
        return {
            "symbols": self.symbols.copy(),
            "action_mask": np.concatenate(parts).astype(np.int8),
        }

    def play(self, action: Action) -> tuple[float, bool]:
        if np.any(action == self.symbols):
            raise ValueError(f"the invalid action {action} was taken, of {self.symbols}")
        reward = float(np.mean(action == (self.symbols + 1) % self.action_space.nvec))
        self.begin()
        return reward, False


class IdentityBox(Game):
    """Return the observed vector as the action: reward -|action - observation|²; vectors are
    uniform in [-scale, scale]; truncated after `length` steps.

    optimum = 0; value = 0. The constant action 0 scores -size * scale² / 3 per step.
    """

    optimum = 0.0

    def __init__(self, size: int = 1, scale: float = 1.0, length: int = 10) -> None:
        self.length, self.scale = length, scale
        self.observation_space = self.action_space = spaces.Box(-scale, scale, (size,), np.float32)
        self.target = np.zeros(size, np.float32)

    def begin(self) -> None:
        self.target = self.np_random.uniform(-self.scale, self.scale, self.target.shape).astype(
            np.float32
        )

    def observe(self) -> Tree:
        return self.target.copy()

    def play(self, action: Action) -> tuple[float, bool]:
        reward = -float(np.sum((np.asarray(action) - self.target) ** 2))
        self.begin()
        return reward, False

    def value(self, gamma: float) -> float:
        return 0.0


class Chain(Game):
    """States 0 to n - 1 in a row, starting at 0; action 1 moves right, 0 left. Reaching the last
    state pays 1 and terminates; everything else pays 0. Truncated after `length` steps (20 n).

    optimum = 1; value of state s = gamma ** (n - 2 - s), and of action 0 in s: gamma times that of
    max(s - 1, 0).
    """

    optimum = 1.0

    def __init__(self, n: int = 5) -> None:
        self.n, self.length, self.place = n, 20 * n, 0
        self.observation_space, self.action_space = spaces.Discrete(n), spaces.Discrete(2)

    def begin(self) -> None:
        self.place = 0

    def observe(self) -> Tree:
        return np.int64(self.place)

    def play(self, action: Action) -> tuple[float, bool]:
        self.place = max(self.place + (1 if action == 1 else -1), 0)
        there = self.place == self.n - 1
        return float(there), there

    def value(self, gamma: float, state: int = 0) -> float:
        return float(gamma ** (self.n - 2 - state))


class InfiniteHorizon(Game):
    """Reward 1 for every action in a single state, forever; truncated after `length` steps.

    optimum = length; value = 1 / (1 - gamma), which is learned only by bootstrapping at truncation.
    """

    def __init__(self, length: int = 10, continuous: bool = False) -> None:
        self.length, self.optimum = length, float(length)
        self.observation_space = spaces.Box(0, 1, (1,), np.float32)
        self.action_space = _actions(continuous)

    def observe(self) -> Tree:
        return np.ones(1, np.float32)

    def play(self, action: Action) -> tuple[float, bool]:
        return 1.0, False

    def value(self, gamma: float) -> float:
        return 1 / (1 - gamma)


class TerminatedTruncatedPair(Game):
    """Two states, sampled uniformly; both pay 1 and do not change. State 0 terminates after one
    step, state 1 is truncated after it.

    optimum = 1; values: 1 in state 0, 1 / (1 - gamma) in state 1. Observed as [1, 0] and [0, 1].
    """

    length, optimum = 1, 1.0

    def __init__(self, continuous: bool = False) -> None:
        self.observation_space = spaces.Box(0, 1, (2,), np.float32)
        self.action_space = _actions(continuous)
        self.which = 0

    def begin(self) -> None:
        self.which = int(self.np_random.integers(2))

    def observe(self) -> Tree:
        return np.eye(2, dtype=np.float32)[self.which]

    def play(self, action: Action) -> tuple[float, bool]:
        return 1.0, self.which == 0

    def value(self, gamma: float) -> tuple[float, float]:
        return 1.0, 1 / (1 - gamma)


class MatrixGame(Game):
    """Payoff matrix [states, actions]: a state is sampled uniformly, one action pays its entry plus
    Gaussian noise, and the episode terminates. A single row is a bandit.

    optimum = mean of the rows' maxima; value = the rows' maxima, for any gamma.
    """

    def __init__(
        self,
        payoffs: Sequence[Sequence[float]] = ((0.0, 0.5, 1.0), (1.0, 0.0, 0.5)),
        noise: float = 0.0,
    ) -> None:
        self.payoffs: Array = np.array(payoffs, np.float64)
        self.noise, self.row = noise, 0
        self.optimum = float(self.payoffs.max(axis=1).mean())
        rows, columns = self.payoffs.shape
        self.observation_space, self.action_space = spaces.Discrete(rows), spaces.Discrete(columns)

    def begin(self) -> None:
        self.row = int(self.np_random.integers(len(self.payoffs)))

    def observe(self) -> Tree:
        return np.int64(self.row)

    def play(self, action: Action) -> tuple[float, bool]:
        return float(
            self.payoffs[self.row, int(action)] + self.noise * self.np_random.standard_normal()
        ), True

    def value(self, gamma: float) -> Array:
        return np.array(self.payoffs.max(axis=1))


class NotFinite(InfiniteHorizon):
    """`InfiniteHorizon` with NaN in the observation or the reward of step `at` of every episode."""

    def __init__(
        self, at: int = 5, where: Literal["observation", "reward"] = "observation", length: int = 10
    ) -> None:
        super().__init__(length)
        self.at, self.where = at, where

    def observe(self) -> Tree:
        return np.full(
            1, np.nan if self.where == "observation" and self.t == self.at else 1, np.float32
        )

    def play(self, action: Action) -> tuple[float, bool]:
        return (float("nan") if self.where == "reward" and self.t == self.at else 1.0), False


class Raises(InfiniteHorizon):
    """`InfiniteHorizon` that raises ValueError at step `at` of every episode (0: at its reset)."""

    def __init__(self, at: int = 5) -> None:
        super().__init__()
        self.at = at

    def observe(self) -> Tree:
        if self.t == self.at:
            raise ValueError("raised on purpose")
        return super().observe()


class WrongShape(InfiniteHorizon):
    """`InfiniteHorizon` whose observation has shape [2], not [1], at step `at` of every episode."""

    def __init__(self, at: int = 5) -> None:
        super().__init__()
        self.at = at

    def observe(self) -> Tree:
        return np.ones(2 if self.t == self.at else 1, np.float32)


class Unrepeatable(IdentityBox):
    """`IdentityBox` that samples from an unseeded generator, so it cannot be resumed exactly."""

    def begin(self) -> None:
        self.target = (
            np.random.default_rng()
            .uniform(-self.scale, self.scale, self.target.shape)
            .astype(np.float32)
        )


class Slow(InfiniteHorizon):
    """`InfiniteHorizon` that sleeps for `milliseconds` in every step."""

    def __init__(self, milliseconds: float = 1.0, length: int = 10) -> None:
        super().__init__(length)
        self.milliseconds = milliseconds

    def play(self, action: Action) -> tuple[float, bool]:
        time.sleep(self.milliseconds / 1000)
        return super().play(action)


def _actions(continuous: bool) -> spaces.Space:
    return spaces.Box(-1, 1, (1,), np.float32) if continuous else spaces.Discrete(2)


KNOWN = (
    Identity,
    IdentityDict,
    IdentityImage,
    IdentityMultiDiscrete,
    IdentityBox,
    Chain,
    InfiniteHorizon,
    TerminatedTruncatedPair,
    MatrixGame,
)
MASKED = (Forbidden, ForbiddenMultiDiscrete)  # raise for invalid actions
FAULTY = (NotFinite, Raises, WrongShape, Unrepeatable, Slow)

for _class in KNOWN + MASKED + FAULTY:
    gymnasium.register(f"tandem/{_class.__name__}-v0", f"{__name__}:{_class.__name__}")
gymnasium.register("tandem/Recall-v0", "tandem.testing.memory_games:Recall")
for _name, _steps in (("CartPolePositions", 500), ("PendulumPositions", 200)):
    _place = f"tandem.testing.memory_games:{_name}"
    gymnasium.register(f"tandem/{_name}-v0", _place, max_episode_steps=_steps)
gymnasium.register("tandem/TicTacToe-v0", "tandem.testing.turn_games:tictactoe")
