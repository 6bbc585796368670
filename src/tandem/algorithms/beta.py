"""Continuous actions from a Beta distribution (Chou et al. 2017, "Improving stochastic policy
gradients in continuous control with deep reinforcement learning using the Beta distribution", PMLR
70): bounded as actions are, so that no probability lies beyond the bounds and none has to be
clipped. `OnPolicy.of` chooses what stands on it by the setting `policy`."""

from __future__ import annotations

from typing import Any

from tandem.algorithms import base
from tandem.math.distributions import Beta
from tandem.spaces import Leaf, Spec


class BetaPolicy:
    """What an algorithm with such a policy has of its own. Actions are in (-1, 1) until the
    environment takes them."""

    action_mode = "unit"
    squashed = "beta"

    @classmethod
    def distribution(cls, action: Leaf) -> Any:
        return Beta(action.width)

    @classmethod
    def check(cls, observation: Spec, action: Leaf) -> None:
        base.bounded_vector(
            f"{cls.__name__.removeprefix('Beta').lower()} with policy='beta'", action
        )
