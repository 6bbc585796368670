"""What deterministic policy gradients (Silver et al. 2014) share: an actor whose output is the
action, with noise on top."""

from __future__ import annotations

from typing import Any

import numpy as np

from tandem.algorithms import base
from tandem.math import distributions
from tandem.networks.defaults import Role, mlp
from tandem.networks.plan import Dense
from tandem.spaces import Leaf, Spec
from tandem.types import Array, Tree


class Deterministic(base.Algorithm):
    """Actions in [-1, 1], Gaussian noise on them while exploring (`settings.exploration`), and
    critics named `critics`."""

    needs = "transitions"
    acting = ("actor",)
    critics: tuple[str, ...]

    @classmethod
    def distribution(cls, settings: Any, action: Leaf) -> distributions.Distribution:
        return distributions.Deterministic(action.width)

    @classmethod
    def check(cls, observation: Spec, action: Leaf, settings: Any) -> None:
        base.bounded_vector(cls.__name__.lower(), action)

    @classmethod
    def roles(cls, observation: Spec, action: Leaf, settings: Any) -> dict[str, Role]:
        actor = Role(
            observation,
            mlp(observation, settings.hidden, settings.activation),
            (Dense(0, action.width, "tanh"),),
        )
        return {"actor": actor} | dict.fromkeys(
            cls.critics, base.action_value(observation, action, settings)
        )

    @classmethod
    def exploration_noise(
        cls,
        settings: Any,
        action: Leaf,
        rng: np.random.Generator,
        shape: tuple[int, ...],
        progress: Array,
    ) -> Tree:
        noise = super().exploration_noise(settings, action, rng, shape, progress)
        return np.float32(settings.exploration) * noise
