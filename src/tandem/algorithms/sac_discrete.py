"""Soft actor-critic for discrete actions (Christodoulou 2019, arXiv:1910.07207): expectations over
all actions instead of samples."""

from __future__ import annotations

import numpy as np

from tandem import ops
from tandem.algorithms import bodies, critics
from tandem.algorithms.recurrent_replay import View
from tandem.algorithms.sac import SACSettings, SoftActorCritic
from tandem.math.action_values import CategoricalValues
from tandem.math.masks import allowed, masked
from tandem.networks.defaults import Role
from tandem.networks.plan import Dense
from tandem.spaces import Leaf, Spec, seen
from tandem.types import Array, Batch, Tree


class DiscreteSAC(SoftActorCritic):
    """SAC with losses over all discrete actions."""

    Settings = SACSettings

    @classmethod
    def roles(cls, observation: Spec, action: Leaf, settings: SACSettings) -> dict[str, Role]:
        body, critic = (
            bodies.body(seen(observation, action), hidden, settings)
            for hidden in (settings.hidden, bodies.widths(settings))
        )
        head = (Dense(0, action.sizes[0]),)
        outputs = critics.values_of(settings, action.sizes[0]).outputs
        q = bodies.role(observation, critic, (Dense(0, outputs),), settings, "critic")
        return {"actor": bodies.role(observation, body, head, settings), "q1": q, "q2": q}

    @staticmethod
    def default_target_entropy(action: Leaf) -> float:
        return 0.98 * float(np.log(action.sizes[0]))  # slightly below that of the uniform policy

    def policy(self, view: View, obs: Tree) -> tuple[Array, Array]:
        """Return (probabilities, log-probabilities) of all actions, [B, A]."""
        out = masked(view(self.actor, obs), obs, self.action)
        log_p = ops.of(out).log_softmax(out)
        return ops.of(out).exp(log_p), log_p

    def entropy(self, view: View, obs: Tree, *noise: Array) -> Array:
        """Return the exact entropy of the policy in these states [B]."""
        p, log_p = self.policy(view, obs)
        return -ops.of(p).sum(p * log_p, -1)

    def critic_loss(self, b: Batch) -> tuple[Array, dict[str, Array]]:
        xp, (now, next_) = ops.of(b.reward), self.views(b)
        p, log_p = self.policy(next_, b.next_obs)
        if isinstance(self.values, CategoricalValues):
            own = [self.values.of_action(now(q, b.obs), b.action) for q in self.qs]
            later = [next_(target, b.next_obs) for target in self.targets]
            return self.categorical_loss(b, own, later, log_p, p)
        least = xp.minimum(*(next_(target, b.next_obs) for target in self.targets))
        next_value = xp.sum(p * (least - xp.exp(self.log_alpha()) * log_p), -1)  # eq. 10
        y = self.soft_target(b, next_value)
        return self.squared_loss(y, *(xp.take(now(q, b.obs), b.action) for q in self.qs))

    def actor_loss(self, b: Batch) -> tuple[Array, dict[str, Array]]:  # eq. 12
        xp, (now, _) = ops.of(b.reward), self.views(b)
        p, log_p = self.policy(now, b.obs)
        least = xp.minimum(*(self.values.part(now(q, b.obs)) for q in self.qs))
        least = xp.stop_gradient(least)
        loss = xp.sum(p * (xp.stop_gradient(xp.exp(self.log_alpha())) * log_p - least), -1)
        return loss, {"entropy": -xp.sum(p * log_p, -1)}

    def alpha_loss(self, b: Batch) -> tuple[Array, dict[str, Array]]:  # eq. 11
        """With masks, the default target entropy depends on the number of valid actions."""
        if not (self.action.masked and self.settings.target_entropy == "auto"):
            return super().alpha_loss(b)
        xp = ops.of(b.reward)
        choices = xp.sum(allowed(b.obs), -1)
        return self.log_alpha() * (b.extra["entropy"] - 0.98 * xp.log(choices)), {}
