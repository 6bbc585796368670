"""Base of deterministic policy gradients (Silver et al. 2014): the actor's output is the action,
and exploration adds noise to it."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from tandem.algorithms import action_spaces, base, bodies, gsde, name_of, recurrent_replay
from tandem.algorithms.base import Forward, Network
from tandem.algorithms.recurrent_replay import View
from tandem.errors import SettingError
from tandem.math import distributions
from tandem.math.state_dependent import StateDependentDeterministic
from tandem.networks.defaults import Role
from tandem.networks.plan import Dense
from tandem.networks.policy_layers import DenseWithInputs
from tandem.settings import setting
from tandem.spaces import Leaf, Spec
from tandem.types import Array, Tree

OU = "Lillicrap et al. 2016, section 7"
Noise = Literal["gaussian", "ou", "gsde"]  # on actions
THETA, DT = 0.15, 0.01  # of Ornstein-Uhlenbeck noise; step length as in Stable-Baselines3


def action_noise() -> Any:
    """Return the setting for the noise on actions."""
    return setting(
        "gaussian",
        "exploration noise: gaussian (independent at each step), ou (Ornstein-Uhlenbeck process) "
        "or gsde (state-dependent, resampled every sde_sample_freq steps)",
        OU + "; " + gsde.PAPER,
    )


class Deterministic(recurrent_replay.RecurrentReplayAlgorithm):
    """Actions in [-1, 1] with exploration noise, and the critics named in `critics`.
    `settings.exploration` is the standard deviation of the noise, or of the driving noise of an
    Ornstein-Uhlenbeck process."""

    needs = "transitions"
    acting = ("actor",)
    critics: tuple[str, ...]
    size: int  # of an action

    def choice(self, actor: Network, view: View, obs: Tree) -> Array:
        """Return the actor's action, without the features that gSDE appends to it."""
        out = view(actor, obs)
        return out[..., : self.size] if self.settings.action_noise == "gsde" else out

    @classmethod
    def distribution(cls, settings: Any, action: Leaf) -> distributions.Distribution:
        if settings.action_noise == "gsde":
            return StateDependentDeterministic(
                action.width, settings.sde_sample_freq, settings.exploration.start
            )
        return distributions.DeterministicDistribution(action.width)

    @classmethod
    def check(cls, observation: Spec, action: Leaf, settings: Any) -> None:
        recurrent_replay.check(settings)
        if settings.recurrent and settings.action_noise == "ou":
            raise SettingError(
                f"recurrent={settings.recurrent} is not supported with action_noise='ou'.",
                "one of them: the actor keeps a recurrent state or the state of the noise",
                "give action_noise='gaussian' or recurrent=0.",
            )
        if settings.action_noise == "gsde" and settings.exploration.end is not None:
            raise SettingError(
                f"exploration={settings.exploration} is not supported with action_noise='gsde'.",
                "one number: the standard deviation of its matrices",
                f"give exploration={settings.exploration.start:g}.",
            )
        action_spaces.bounded_vector(name_of(cls), action)

    @classmethod
    def roles(cls, observation: Spec, action: Leaf, settings: base.Settings) -> dict[str, Role]:
        head = DenseWithInputs if settings.action_noise == "gsde" else Dense
        body = bodies.body(observation, settings.hidden, settings)
        actor = bodies.role(observation, body, (head(0, action.width, "tanh"),), settings)
        return {"actor": actor} | dict.fromkeys(
            cls.critics, bodies.action_value(observation, action, settings)
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
        if settings.action_noise == "gsde":
            return noise
        return settings.exploration(progress)[:, None, None] * noise

    @staticmethod
    def initial_state(settings: base.Settings, action: Leaf, n: int) -> Tree:
        """Return the states of the Ornstein-Uhlenbeck processes, or the recurrent states."""
        if settings.action_noise == "ou":
            return np.zeros((n, action.width), np.float32)
        return base.Algorithm.initial_state(settings, action, n)

    @classmethod
    def act(
        cls,
        settings: base.Settings,
        action: Leaf,
        networks: dict[str, Forward],
        obs: Tree,
        state: Tree,
        noise: Tree,
    ) -> tuple[Array, dict[str, Array], Tree]:
        if settings.action_noise != "ou":
            return super().act(settings, action, networks, obs, state, noise)
        if noise is not None:
            state = state - np.float32(THETA * DT) * state + np.float32(DT**0.5) * noise
            noise = state
        chosen, extra, _ = super().act(settings, action, networks, obs, (), noise)
        return chosen, extra, state
