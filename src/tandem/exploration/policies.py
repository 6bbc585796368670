"""Policies that choose an action from one value per action.

Every policy has `choose(values, step)`, which works over any leading axes, and `select_action` for
a single vector. Each has its own NumPy generator `rng`, seeded when the policy is created.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from tandem import ops
from tandem.errors import NonFiniteError, SettingError
from tandem.exploration.seeded import Seed, Seeded
from tandem.types import Array, JSONDict

CLIP = (-500.0, 500.0)


class Policy(Seeded, ABC):
    """Base class of policies."""

    @abstractmethod
    def choose(self, values: Array, step: int = 0) -> Array:
        """Return actions [...], int64, for values [..., n]. `step` counts training steps from 0."""

    def select_action(self, values: Array, step: int = 0) -> int:
        """Return the action, 0 to n - 1, for one vector [n] of values. Raises NonFiniteError if
        they are not finite, SettingError if this is not a vector."""
        values = np.asarray(values)
        if values.ndim != 1 or not values.size:
            raise SettingError(
                f"{type(self).__name__}.select_action received values of shape {values.shape}.",
                "a vector with one number for each action",
                "use choose(values) for several observations at once, or take the first row.",
            )
        return int(self.choose(values, step))

    def _or_random(self, eps: float, best: Array, values: Array) -> Array:
        """Return `best`, or with probability eps a uniformly random action."""
        if best.size == 1:  # the same random numbers, three times as fast
            explore, action = self.rng.random() < eps, self.rng.integers(values.shape[-1])
            return np.full(best.shape, action) if explore else best
        explore = self.rng.random(best.shape) < eps
        return np.where(explore, self.rng.integers(values.shape[-1], size=values.shape[:-1]), best)

    def _draw(self, probabilities: Array) -> Array:
        """Sample actions [...] with probabilities [..., n]."""
        ends = np.cumsum(probabilities, -1)
        at = self.rng.random((*ends.shape[:-1], 1)) * ends[..., -1:]
        return (ends <= at).sum(-1).clip(max=ends.shape[-1] - 1)


class SoftmaxPolicy(Policy):
    """Policy that samples from the probabilities that the network outputs; its last layer is a
    softmax."""

    def choose(self, values: Array, step: int = 0) -> Array:
        p = _finite(self, values)
        if (p < 0).any() or (abs(p.sum(-1) - 1) > 1e-3).any():
            raise SettingError(
                f"SoftmaxPolicy received numbers that are not probabilities: {_shown(p)}.",
                "numbers of at least 0 that sum to 1",
                "end the network with a softmax, or use BoltzmannQPolicy, which takes any numbers.",
            )
        return self._draw(p)

    def select_action(self, values: Any, step: Any = 0) -> int:
        """Return the action for one vector of probabilities. select_action(n, probabilities), as
        documented elsewhere, is equivalent."""
        return super().select_action(step if np.ndim(values) == 0 else values)


class GreedyQPolicy(Policy):
    """Policy that chooses the action with the highest value; the first of equal ones."""

    def choose(self, values: Array, step: int = 0) -> Array:
        return _finite(self, values).argmax(-1)


class EpsGreedyQPolicy(Policy):
    """Policy that chooses a random action with probability `eps`, else the best (Sutton & Barto
    2018, section 2.2)."""

    def __init__(self, eps: float = 0.1, seed: Seed = None) -> None:
        super().__init__(seed)
        self.eps = _within("eps", eps, 0.0, 1.0)

    def choose(self, values: Array, step: int = 0) -> Array:
        values = _finite(self, values)
        return self._or_random(self.eps, values.argmax(-1), values)


class AdaptiveEpsGreedyPolicy(Policy):
    """Policy that chooses a random action with probability min_eps + (initial_eps - min_eps)
    exp(-decay_rate step), else the best. `eps` is that of the last step; an assigned value stays
    until None is assigned."""

    def __init__(
        self,
        initial_eps: float = 1.0,
        min_eps: float = 0.1,
        decay_rate: float = 1e-4,
        seed: Seed = None,
    ) -> None:
        super().__init__(seed)
        self.initial_eps = _within("initial_eps", initial_eps, 0.0, 1.0)
        self.min_eps = _within("min_eps", min_eps, 0.0, 1.0)
        self.decay_rate = _within("decay_rate", decay_rate, 0.0)
        self.fixed: float | None = None  # assigned to eps
        self._decayed = self.initial_eps

    @property
    def eps(self) -> float:
        return self._decayed if self.fixed is None else self.fixed

    @eps.setter
    def eps(self, eps: float | None) -> None:
        self.fixed = None if eps is None else _within("eps", eps, 0.0, 1.0)

    def choose(self, values: Array, step: int = 0) -> Array:
        values = _finite(self, values)
        self._decayed = float(
            self.min_eps + (self.initial_eps - self.min_eps) * np.exp(-self.decay_rate * step)
        )
        return self._or_random(self.eps, values.argmax(-1), values)

    def state(self) -> JSONDict:
        return {**super().state(), "fixed": self.fixed, "decayed": self._decayed}

    def load_state(self, state: dict[str, Any]) -> None:
        super().load_state(state)
        self.fixed = state.get("fixed", self.fixed)  # missing in older files
        self._decayed = state.get("decayed", self._decayed)


class BoltzmannQPolicy(Policy):
    """Policy that samples from softmax(values / tau), with the quotient clipped (Sutton & Barto
    2018, section 2.8)."""

    def __init__(
        self, tau: float = 1.0, clip: tuple[float, float] = CLIP, seed: Seed = None
    ) -> None:
        super().__init__(seed)
        self.tau, self.clip = _above("tau", tau), _range(clip)

    def choose(self, values: Array, step: int = 0) -> Array:
        x = np.clip(_finite(self, values) / self.tau, *self.clip)
        return self._draw(np.exp(x - x.max(-1, keepdims=True)))


class MaxBoltzmannQPolicy(BoltzmannQPolicy):
    """Policy that samples like `BoltzmannQPolicy` with probability `eps`, else chooses the best
    action (Wiering 1999, "Explorations in efficient reinforcement learning", section 4.2)."""

    def __init__(
        self,
        eps: float = 0.1,
        tau: float = 1.0,
        clip: tuple[float, float] = CLIP,
        seed: Seed = None,
    ) -> None:
        super().__init__(tau, clip, seed)
        self.eps = _within("eps", eps, 0.0, 1.0)

    def choose(self, values: Array, step: int = 0) -> Array:
        best = _finite(self, values).argmax(-1)
        explore = self.rng.random(best.shape) < self.eps
        return np.where(explore, super().choose(values, step), best)


class BoltzmannGumbelQPolicy(Policy):
    """Policy that chooses the maximum of values + C / sqrt(count) Gumbel noise, where `count` is
    the number of times that an action was taken, starting at 1 (Cesa-Bianchi et al. 2017,
    arXiv:1705.10257, section 4)."""

    def __init__(self, C: float = 1.0, seed: Seed = None) -> None:
        super().__init__(seed)
        self.C, self.counts = _above("C", C), np.ones(0, np.int64)

    def choose(self, values: Array, step: int = 0) -> Array:
        """Return actions, and update the counts. Counts are reset at step 0. Several observations
        share the counts from before the call."""
        values = _finite(self, values)
        if step == 0 or len(self.counts) != values.shape[-1]:
            self.counts = np.ones(values.shape[-1], np.int64)
        chosen = (
            values + self.C / np.sqrt(self.counts) * self.rng.gumbel(size=values.shape)
        ).argmax(-1)
        np.add.at(self.counts, chosen, 1)
        return chosen

    def state(self) -> JSONDict:
        return {**super().state(), "counts": self.counts.tolist()}

    def load_state(self, state: dict[str, Any]) -> None:
        super().load_state(state)
        self.counts = np.array(state["counts"], np.int64)


class GumbelSoftmaxPolicy(Policy):
    """Policy that samples from softmax(logits), as the maximum of logits + Gumbel noise; with
    probability `eps` it takes a random action. `relaxed` is the differentiable sample (Jang et al.
    2017, arXiv:1611.01144, eq. 2)."""

    def __init__(self, temperature: float = 1.0, eps: float = 0.01, seed: Seed = None) -> None:
        super().__init__(seed)
        self.temperature = _above("temperature", temperature)
        self.eps = _within("eps", eps, 0.0, 1.0)

    def choose(self, values: Array, step: int = 0) -> Array:
        values = _finite(self, values)
        return self._or_random(self.eps, (values + self.noise(values.shape)).argmax(-1), values)

    def noise(self, shape: tuple[int, ...]) -> Array:
        """Return Gumbel noise, -log(-log U), float32. It is sampled here, so that a compiled loss
        takes it as data."""
        return self.rng.gumbel(size=shape).astype(np.float32)

    def relaxed(self, logits: Array, noise: Array, hard: bool = True) -> Array:
        """Return softmax((logits + noise) / temperature), [..., n], in any framework; with `hard`,
        its one-hot maximum in the forward pass with the softmax's gradient ("straight-through",
        section 2.2)."""
        xp = ops.of(logits)
        soft = xp.exp(xp.log_softmax((logits + noise) / self.temperature))
        if not hard:
            return soft
        return xp.stop_gradient(xp.one_hot(xp.argmax(soft, -1), soft.shape[-1]) - soft) + soft


def _finite(policy: Policy, values: Array) -> Array:
    values = np.asarray(values)
    # a finite sum of squares implies finite values, and is faster to check
    if not math.isfinite(np.vdot(values, values)) and not np.isfinite(values).all():
        raise NonFiniteError(
            f"{type(policy).__name__} received values that are not finite: {_shown(values)}.",
            "one finite number for each action",
            "lower the learning rate, or clip gradients; check the network's inputs.",
        )
    return values


def _shown(values: Array) -> str:
    return np.array2string(values.reshape(-1)[:8], precision=4, separator=", ") + (
        " ..." if values.size > 8 else ""
    )


def _above(name: str, value: float) -> float:
    if not (np.isfinite(value) and value > 0):
        raise SettingError(f"{name}={value!r}.", "a number above 0", f"try {name}=1.0.")
    return float(value)


def _within(name: str, value: float, low: float, high: float = np.inf) -> float:
    if not (np.isfinite(value) and low <= value <= high):
        wanted = (
            f"a number of at least {low:g}"
            if high == np.inf
            else f"a number from {low:g} to {high:g}"
        )
        raise SettingError(
            f"{name}={value!r}.", wanted, f"try {name}={low if high == np.inf else high / 10:g}."
        )
    return float(value)


def _range(clip: tuple[float, float]) -> tuple[float, float]:
    low, high = clip
    if not low < high:
        raise SettingError(f"clip={clip}.", "two numbers, the lower one first", f"try clip={CLIP}.")
    return low, high
