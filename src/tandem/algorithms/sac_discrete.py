"""Soft actor-critic for discrete actions (Christodoulou 2019, arXiv:1910.07207): expectations over all actions, where SAC
samples one."""

from __future__ import annotations

from typing import Any

import numpy as np

from tandem import ops
from tandem.algorithms import base
from tandem.algorithms.base import Call, Forward
from tandem.algorithms.sac import SACSettings
from tandem.math.distributions import Categorical
from tandem.networks.defaults import Role, mlp
from tandem.networks.plan import Dense
from tandem.spaces import Leaf, Spec
from tandem.types import Array, Batch, Tree, Update


class DiscreteSAC(base.Algorithm):
    Settings = SACSettings
    needs = "transitions"
    acting = ("actor",)

    def __init__(self, backend: Any, networks: dict[str, Any], observation: Spec, action: Leaf, settings: SACSettings) -> None:
        self.backend, self.settings = backend, settings
        self.actor = backend.network("actor", networks["actor"])
        self.qs, self.targets = zip(backend.pair("q1", networks["q1"]), backend.pair("q2", networks["q2"]), strict=True)
        options = base.optimizer_options(settings)
        self.critic_optimizer = backend.optimizer("critic", list(self.qs), settings.optimizer, **options)
        self.actor_optimizer = backend.optimizer("actor", [self.actor], settings.optimizer, **options)
        self.learned = settings.temperature == "auto"
        start = settings.initial_temperature if self.learned else float(settings.temperature)
        self.log_alpha = backend.scalar("log_alpha", float(np.log(start)))
        most = float(np.log(action.sizes[0]))  # the entropy of choosing evenly
        self.target_entropy = 0.98 * most if settings.target_entropy == "auto" else float(settings.target_entropy)
        if self.learned:
            self.alpha_optimizer = backend.optimizer("temperature", [self.log_alpha], settings.optimizer, **options)

    @classmethod
    def check(cls, observation: Spec, action: Leaf) -> None:
        """Whatever `SAC.of` sends here is fine."""

    @classmethod
    def roles(cls, observation: Spec, action: Leaf, settings: SACSettings) -> dict[str, Role]:
        body, head = mlp(observation, settings.hidden, settings.activation), (Dense(0, action.sizes[0]),)
        q = Role(observation, body, head, "critic")
        return {"actor": Role(observation, body, head), "q1": q, "q2": q}

    def policy(self, obs: Tree) -> tuple[Array, Array]:
        """(probabilities, their logarithms) of all actions, [B, A]."""
        out = self.actor(obs)
        log_p = ops.of(out).log_softmax(out)
        return ops.of(out).exp(log_p), log_p

    def critic_loss(self, b: Batch) -> tuple[Array, dict[str, Array]]:
        xp = ops.of(b.reward)
        p, log_p = self.policy(b.next_obs)
        least = xp.minimum(*(target(b.next_obs) for target in self.targets))
        soft = xp.sum(p * (least - xp.exp(self.log_alpha()) * log_p), -1)  # eq. 10
        y = xp.stop_gradient(b.reward + b.discount * soft)
        q1, q2 = (xp.take(q(b.obs), b.action) for q in self.qs)
        return 0.5 * ((q1 - y) ** 2 + (q2 - y) ** 2), {"q": q1}

    def actor_loss(self, b: Batch) -> tuple[Array, dict[str, Array]]:  # eq. 12
        xp = ops.of(b.reward)
        p, log_p = self.policy(b.obs)
        least = xp.stop_gradient(xp.minimum(*(q(b.obs) for q in self.qs)))
        loss = xp.sum(p * (xp.stop_gradient(xp.exp(self.log_alpha())) * log_p - least), -1)
        return loss, {"entropy": -xp.sum(p * log_p, -1)}

    def alpha_loss(self, b: Batch) -> tuple[Array, dict[str, Array]]:  # eq. 11, in log space as is usual
        return self.log_alpha() * (b.extra["entropy"] - self.target_entropy), {}

    def update(self, b: Batch) -> Update:
        rate, xp = b.settings["learning_rate"], ops.of(b.reward)
        critic_loss, critic = self.backend.minimize(self.critic_optimizer, self.critic_loss, b, rate)
        actor_loss, actor = self.backend.minimize(self.actor_optimizer, self.actor_loss, b, rate)
        if self.learned:
            self.backend.minimize(self.alpha_optimizer, self.alpha_loss, b._replace(extra=actor), rate)
        for q, target in zip(self.qs, self.targets, strict=True):
            self.backend.track(q, target, b.settings["tau"])
        metrics = {"critic_loss": critic_loss, "actor_loss": actor_loss, "q": xp.mean(critic["q"])}
        return Update({**metrics, "entropy": xp.mean(actor["entropy"]), "temperature": xp.exp(self.log_alpha())})

    def schedule(self, call: Call) -> dict[str, Array]:
        return {
            "learning_rate": self.settings.learning_rate(call.progress),
            "tau": np.full(len(call.progress), self.settings.tau, np.float32),
        }

    @staticmethod
    def act_noise(settings: Any, action: Leaf, rng: np.random.Generator, shape: tuple[int, ...], progress: Array) -> Tree:
        return Categorical(action.sizes[0]).noise(rng, shape)

    @staticmethod
    def act(
        networks: dict[str, Forward], obs: Tree, state: Tree, noise: Tree, action: Leaf
    ) -> tuple[Array, dict[str, Array], Tree]:
        policy, out = Categorical(action.sizes[0]), networks["actor"](obs)
        return (policy.mode(out) if isinstance(noise, tuple) else policy.sample(out, noise)), {}, state
