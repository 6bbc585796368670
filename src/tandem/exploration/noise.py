"""Random processes that are added to continuous actions for exploration."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from tandem.errors import SettingError
from tandem.exploration.seeded import Seed, Seeded
from tandem.types import Array, JSONDict


class RandomProcess(Seeded, ABC):
    """Base class of noise processes in time."""

    @abstractmethod
    def sample(self) -> Array:
        """Return the noise of the next step, [size] float64."""

    @abstractmethod
    def reset_states(self) -> None:
        """Reset the process before an episode. Annealing continues."""


class AnnealedGaussianProcess(RandomProcess):
    """Base class of Gaussian processes. Their standard deviation falls linearly from `sigma` to
    `sigma_min` over `n_steps_annealing` samples and then stays; it is constant without
    `sigma_min`."""

    def __init__(
        self,
        mu: float,
        sigma: float,
        sigma_min: float | None,
        n_steps_annealing: int,
        seed: Seed = None,
    ) -> None:
        super().__init__(seed)
        if not sigma >= 0 or (sigma_min is not None and not 0 <= sigma_min <= sigma):
            raise SettingError(
                f"sigma={sigma!r} and sigma_min={sigma_min!r}.",
                "sigma of at least 0, and sigma_min from 0 to sigma, or None",
                "try sigma=0.2, sigma_min=0.05.",
            )
        if n_steps_annealing < 1:
            raise SettingError(
                f"n_steps_annealing={n_steps_annealing!r}.",
                "at least 1 step",
                "try n_steps_annealing=1000.",
            )
        self.mu = mu
        self.sigma = sigma
        self.sigma_min = sigma_min
        self.n_steps_annealing = n_steps_annealing
        self.n_steps = 0  # samples so far

    @property
    def current_sigma(self) -> float:
        if self.sigma_min is None:
            return self.sigma
        return max(
            self.sigma_min,
            self.sigma - (self.sigma - self.sigma_min) * self.n_steps / self.n_steps_annealing,
        )

    def state(self) -> JSONDict:
        return {**super().state(), "n_steps": self.n_steps}

    def load_state(self, state: JSONDict) -> None:
        super().load_state(state)
        self.n_steps = state["n_steps"]


class GaussianWhiteNoiseProcess(AnnealedGaussianProcess):
    """Independent samples from N(mu, current_sigma^2). size: dimension or shape of an action."""

    def __init__(
        self,
        mu: float = 0.0,
        sigma: float = 1.0,
        sigma_min: float | None = None,
        n_steps_annealing: int = 1000,
        size: int | tuple[int, ...] = 1,
        seed: Seed = None,
    ) -> None:
        super().__init__(mu, sigma, sigma_min, n_steps_annealing, seed)
        self.size = size

    def reset_states(self) -> None:
        """Do nothing: samples are independent."""

    def sample(self) -> Array:
        noise = self.rng.normal(self.mu, self.current_sigma, self.size)
        self.n_steps += 1
        return noise


class OrnsteinUhlenbeckProcess(AnnealedGaussianProcess):
    """Temporally correlated noise: x <- x + theta (mu - x) dt + current_sigma sqrt(dt) N(0, 1)
    (Uhlenbeck & Ornstein 1930; for control, Lillicrap et al. 2016, arXiv:1509.02971, section 7).
    Episodes start from N(mu, current_sigma^2)."""

    def __init__(
        self,
        theta: float,
        mu: float = 0.0,
        sigma: float = 1.0,
        dt: float = 1e-2,
        size: int | tuple[int, ...] = 1,
        sigma_min: float | None = None,
        n_steps_annealing: int = 1000,
        seed: Seed = None,
    ) -> None:
        super().__init__(mu, sigma, sigma_min, n_steps_annealing, seed)
        if not dt > 0 or not theta >= 0:
            raise SettingError(
                f"theta={theta!r}, dt={dt!r}.",
                "theta of at least 0, and dt above 0",
                "try theta=0.15, dt=1e-2.",
            )
        self.theta, self.dt, self.size = theta, dt, size
        self.reset_states()

    def reset_states(self) -> None:
        self.x = self.rng.normal(self.mu, self.current_sigma, self.size)

    def sample(self) -> Array:
        drift = self.theta * (self.mu - self.x) * self.dt
        self.x = (
            self.x
            + drift
            + self.current_sigma * np.sqrt(self.dt) * self.rng.standard_normal(self.size)
        )
        self.n_steps += 1
        return self.x.copy()

    def state(self) -> JSONDict:
        return {**super().state(), "x": self.x.tolist()}

    def load_state(self, state: JSONDict) -> None:
        super().load_state(state)
        self.x = np.array(state["x"])
