"""What deterministic policy gradients (Silver et al. 2014) share: an actor whose output is the
action, with noise on top."""

from __future__ import annotations

from typing import Any

import numpy as np

from tandem.algorithms import base
from tandem.algorithms.base import Forward
from tandem.networks.defaults import Role, mlp
from tandem.networks.plan import Dense
from tandem.spaces import Leaf, Spec
from tandem.types import Array, Tree


class Deterministic(base.Algorithm):
    """Actions in [-1, 1], Gaussian noise on them while exploring (`settings.exploration`), and
    critics named `critics`."""

    needs = "transitions"
    acting = ("actor",)
    action_mode = "unit"
    critics: tuple[str, ...]

    @classmethod
    def check(cls, observation: Spec, action: Leaf) -> None:
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

    @staticmethod
    def exploration_noise(
        settings: Any,
        action: Leaf,
        rng: np.random.Generator,
        shape: tuple[int, ...],
        progress: Array,
    ) -> Tree:
        return np.float32(settings.exploration) * rng.standard_normal(
            (*shape, action.width), dtype=np.float32
        )

    @staticmethod
    def act(
        networks: dict[str, Forward], obs: Tree, state: Tree, noise: Tree, action: Leaf
    ) -> tuple[Array, dict[str, Array], Tree]:
        out = networks["actor"](obs)
        return (out if noise is None else (out + noise).clip(-1.0, 1.0)), {}, state
