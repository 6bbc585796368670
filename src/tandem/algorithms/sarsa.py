"""Bootstrap values from action values: the largest value (Q-learning, Watkins & Dayan 1992,
doi:10.1007/BF00992698), the value of the next action (SARSA), or the mean over the acting
epsilon-greedy policy (expected SARSA): Sutton & Barto 2018, "Reinforcement learning: an
introduction", 2nd edition, eqs. 6.7 and 6.9, section 7.2."""

from __future__ import annotations

from typing import Any

import numpy as np

from tandem import ops
from tandem.algorithms import base, recurrent_batches
from tandem.algorithms.base import Forward
from tandem.algorithms.dqn import DQN, epsilon_greedy
from tandem.math.masks import allowed, masked
from tandem.math.values import epsilon_greedy_value
from tandem.settings import setting
from tandem.spaces import Leaf
from tandem.types import Array, Tree


def bootstrap() -> Any:
    """Return the setting that selects the bootstrap value."""
    return setting(
        "max",
        "bootstrap value: maximum (Q-learning), value of the next action (sarsa), or mean over "
        "the epsilon-greedy policy (expected SARSA)",
        "Sutton & Barto 2018, eqs. 6.7, 6.8, 6.9",
    )


class EpsilonGreedy(base.Algorithm):
    """An algorithm that acts epsilon-greedily on the action values of one network."""

    @classmethod
    def exploration_noise(
        cls,
        settings: Any,
        action: Leaf,
        rng: np.random.Generator,
        shape: tuple[int, ...],
        progress: Array,
    ) -> Tree:
        """Return DQN's noise, followed by epsilon [T, N] if returns need the acting policy. Epsilon
        is then stored with each step."""
        noise = DQN.exploration_noise(settings, action, rng, shape, progress)
        if settings.bootstrap == "max":
            return noise
        epsilon = settings.epsilon(progress)[:, None] + np.zeros(shape, np.float32)
        return (*noise, epsilon.astype(np.float32))

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
        (role,) = cls.acting
        out, after = recurrent_batches.advance(networks[role], obs, state)

        def q() -> Array:
            return masked(out, obs, action)

        if noise is None:
            return epsilon_greedy(q, obs, action, None), {}, after
        extra = {"epsilon": noise[2]} if len(noise) > 2 else {}
        return epsilon_greedy(q, obs, action, noise[:2]), extra, after


def policy_value(q: Array, chooser: Array, obs: Tree, action: Leaf, epsilon: Array | None) -> Array:
    """Return the values [...] of observations under the policy that is epsilon-greedy on `chooser`
    [..., A]; epsilon=None: the greedy policy. q, chooser: [..., A], with invalid actions masked;
    obs: includes the action masks [..., A], if any."""
    xp = ops.of(q)
    best = xp.argmax(chooser, -1)
    if epsilon is None:
        return xp.take(q, best)
    return epsilon_greedy_value(q, best, epsilon, allowed(obs) if action.masked else None)
