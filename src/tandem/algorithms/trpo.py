"""Trust region policy optimization (Schulman et al. 2015, arXiv:1502.05477) with generalized
advantage estimation (Schulman et al. 2016, arXiv:1506.02438): natural gradients by conjugate
gradients on Fisher-vector products, and a line search."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tandem import ops
from tandem.algorithms import gsde, memories
from tandem.algorithms.base import Call
from tandem.algorithms.on_policy import OnPolicy, OnPolicySettings
from tandem.backends.backend import Backend, Region
from tandem.errors import NetworkError, SettingError
from tandem.networks.defaults import Source
from tandem.settings import Schedule, Search, default, setting
from tandem.spaces import Leaf, Spec
from tandem.types import Array, Batch, Update

PAPER = "Schulman et al. 2015, appendix D, table 2"
SB3 = "sb3-contrib 2.9 (TRPO)"


@dataclass(frozen=True)
class TRPOSettings(OnPolicySettings):
    """Settings of TRPO."""

    envs: int = default(1)
    rollout: int = default(2_048, SB3)
    learning_rate: Schedule = default(
        Schedule(1e-3), SB3, help="learning rate of the critic; accepts a schedule"
    )
    max_grad_norm: float = default(0.0, SB3, search=Search(choices=(0.0, 0.5)))
    gae_lambda: float = default(0.95, SB3)
    radius: Schedule = setting(
        Schedule(0.01), "maximum mean KL per policy step; accepts a schedule", PAPER, minimum=0
    )
    damping: float = setting(0.1, "multiple of the identity in the Fisher matrix", SB3, minimum=0)
    conjugate_steps: int = setting(15, "number of conjugate gradient iterations", SB3, minimum=1)
    backtracks: int = setting(10, "maximum number of step sizes in the line search", SB3, minimum=1)
    shrink: float = setting(0.8, "step size factor in the line search", SB3, minimum=0, maximum=1)
    epochs: int = setting(10, "critic epochs per rollout", SB3, minimum=1)
    batch_size: int = setting(
        128,
        "minibatch size of the critic; the policy step uses the whole rollout; 0: the critic too",
        SB3,
        minimum=0,
    )
    recurrent: int = memories.units("between feature extractor and head of both networks")
    memory: Literal["gru", "lstm"] = memories.kind()
    sequence: int = setting(
        16,
        "with recurrent: truncated backpropagation length, a divisor of rollout; 0: whole rollout",
        minimum=0,
        needs=memories.NEEDED,
    )
    action_noise: gsde.Noise = gsde.choice()
    sde_sample_freq: int = gsde.sample_freq()


class TRPO(OnPolicy):
    Settings = TRPOSettings

    def __init__(
        self,
        backend: Backend,
        networks: dict[str, Source],
        observation: Spec,
        action: Leaf,
        settings: TRPOSettings,
    ) -> None:
        super().__init__(backend, networks, observation, action, settings)
        if kind := self.actor.mode_dependent_layer():
            raise NetworkError(
                f"trpo does not support a policy with a {kind}.",
                "a policy with the same outputs in training and acting, since a trust-region step "
                "updates no statistics",
                "leave that layer out of the actor's feature extractor, or replace it with a layer "
                "norm; the critic's may have it.",
            )
        if self.actor.constrained:
            raise NetworkError(
                "trpo does not support a policy with weight constraints.",
                "weights changed by its step alone, since a projection would leave the trust "
                "region",
                "leave the constraint out of the actor's feature extractor; the critic's may have "
                "it.",
            )
        self.region = Region(
            settings.damping, settings.conjugate_steps, settings.backtracks, settings.shrink
        )
        self.actor_optimizer = backend.optimizer("actor", [self.actor], "sgd")
        self.critic_optimizer = self._make_optimizer("critic", [self.critic])

    @classmethod
    def check(cls, observation: Spec, action: Leaf, settings: OnPolicySettings) -> None:
        super().check(observation, action, settings)
        if settings.body == "simbav2":
            raise SettingError(
                "trpo does not support body='simbav2'.",
                "weights changed by its step alone, since a projection would leave the trust "
                "region",
                "give body='simba'.",
            )
        if settings.body == "simba" and not settings.normalize_observations:
            raise SettingError(
                "trpo does not support body='simba' with normalize_observations=False.",
                "statistics of whole rollouts, since a trust-region step updates none of its own",
                "give normalize_observations=True, or leave it out.",
            )

    def objective(self, b: Batch) -> Array:  # eq. 14
        log_ratio = self.policy.log_prob(self.output(self.actor, b), b.action) - b.extra["log_prob"]
        return ops.of(log_ratio).exp(log_ratio) * b.extra["advantage"]

    def divergence(self, b: Batch) -> Array:  # eq. 12
        return self.policy.kl(b.extra["policy"], self.output(self.actor, b))

    def value_loss(self, b: Batch) -> tuple[Array, dict[str, Array]]:
        return (self.output(self.critic, b)[..., 0] - b.extra["return"]) ** 2, {}

    def whole_update(self) -> Callable[[Batch], Update] | None:
        return self.update_policy if self.settings.batch_size else None

    def update_policy(self, b: Batch) -> Update:
        return Update(self.policy_step(self.standardize_advantages(self.steps(b))))

    def policy_step(self, b: Batch) -> dict[str, Array]:  # appendix C
        return self.backend.trust_region_step(
            self.actor_optimizer,
            self.objective,
            self.divergence,
            b,
            b.settings["radius"],
            self.region,
            ops.of(b.weight).sum(b.weight),
        )

    def update(self, b: Batch) -> Update:
        b = self.steps(b)
        s, rows = b.settings, ops.of(b.weight).sum(b.weight)
        metrics = dict[str, Array]()
        if not self.settings.batch_size:  # then the first update includes the policy
            whole = self.standardize_advantages(b)
            metrics = self.backend.cond(
                s["policy"], lambda: self.policy_step(whole), ("improvement", "divergence")
            )
        value_loss, _ = self.backend.minimize(
            self.critic_optimizer,
            self.value_loss,
            b,
            s["learning_rate"],
            s["max_grad_norm"],
            rows,
        )
        return Update({"value_loss": value_loss, **metrics})

    def schedule(self, call: Call) -> dict[str, Array]:
        return {
            "policy": (np.arange(len(call.progress)) == 0).astype(np.float32),
            **self.scheduled(call, "learning_rate", "radius", "max_grad_norm"),
        }

    def behavior_outputs(self, out: Array, action: Array) -> dict[str, Array]:
        return {**super().behavior_outputs(out, action), "policy": out}
