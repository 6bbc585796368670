"""On-policy algorithms whose continuous actions follow a Beta distribution (Chou et al. 2017, "Improving stochastic policy
gradients in continuous control with deep reinforcement learning using the Beta distribution", PMLR 70): bounded as actions are,
so that no probability lies beyond the bounds and none has to be clipped. `OnPolicy.of` chooses them by the setting `policy`."""

from __future__ import annotations

from typing import Any

from tandem.algorithms import base
from tandem.algorithms.a2c import A2C
from tandem.algorithms.on_policy import OnPolicy
from tandem.algorithms.ppo import PPO
from tandem.algorithms.trpo import TRPO
from tandem.math.distributions import Beta
from tandem.spaces import Leaf, Spec


class BetaPolicy(OnPolicy):
    """What their policies have in common. Actions are in (-1, 1) until the environment takes them."""

    action_mode = "unit"
    squashed = "beta"

    @classmethod
    def distribution(cls, action: Leaf) -> Any:
        return Beta(action.width)

    @classmethod
    def check(cls, observation: Spec, action: Leaf) -> None:
        base.bounded_vector(f"{cls.__name__.removeprefix('Beta').lower()} with policy='beta'", action)


class BetaA2C(BetaPolicy, A2C):
    pass


class BetaPPO(BetaPolicy, PPO):
    pass


class BetaTRPO(BetaPolicy, TRPO):
    pass
