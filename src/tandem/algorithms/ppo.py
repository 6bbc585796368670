"""Proximal policy optimization (Schulman et al. 2017, arXiv:1707.06347) with the clipped surrogate,
for discrete and continuous actions and combinations of them. Details mostly as in "The 37
implementation details of PPO" (Huang et al. 2022)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import Literal

import numpy as np

from tandem import ops
from tandem.algorithms import curiosity, gsde
from tandem.algorithms.base import Backend, Call, Forward
from tandem.algorithms.normalized import DETAILS
from tandem.algorithms.on_policy import JointSettings, OnPolicy
from tandem.errors import SettingError
from tandem.math.policy_losses import clipped_surrogate, kl_estimate
from tandem.math.values import clipped_value_loss
from tandem.networks.defaults import Role, Source
from tandem.networks.value_scale import Denormalize, follow
from tandem.settings import Schedule, Search, default, setting
from tandem.spaces import Leaf, Spec
from tandem.types import Array, Batch, Trajectory, Update

PAPER = "Schulman et al. 2017, table 3 (MuJoCo)"


@dataclass(frozen=True)
class PPOSettings(curiosity.CuriositySettings, JointSettings):
    """Settings of PPO."""

    envs: int = default(8, "Schulman et al. 2017, table 5 (Atari)")
    learning_rate: Schedule = default(
        Schedule(3e-4),
        PAPER + "; " + DETAILS + ", detail 4",
        help="learning rate; accepts a schedule, such as 3e-4:0",
    )
    activation: str = default(
        "tanh", "Schulman et al. 2017, section 6.1", search=Search(choices=("tanh", "relu"))
    )
    rollout: int = default(
        256, "2048 in all, as in " + PAPER, search=Search(32, 2048, "powers of two")
    )
    epochs: int = setting(10, "epochs per rollout", PAPER, minimum=1, search=Search(1, 20))
    batch_size: int = setting(
        64, "minibatch size", PAPER, minimum=1, search=Search(32, 512, "powers of two")
    )
    gae_lambda: float = default(0.95, PAPER)
    value_weight: float = setting(
        0.5, "weight of the value loss", DETAILS + ", detail 10", minimum=0
    )
    entropy: Schedule = setting(
        Schedule(0.0),
        "weight of the entropy bonus; accepts a schedule",
        PAPER + "; " + DETAILS + ", detail 10",
        minimum=-inf,
        search=Search(1e-8, 0.1, "log"),
    )
    clip: Schedule = setting(
        Schedule(0.2),
        "clip range ε: the probability ratio is clipped to 1 ± ε; accepts a schedule",
        PAPER,
        minimum=0,
        search=Search(0.1, 0.4),
    )
    sequence: int = default(
        16,
        help="with recurrent: truncated backpropagation length, a divisor of rollout and "
        "batch_size; 0: whole rollout",
    )
    value_clip: float = setting(
        0.0,
        "clip range of the value loss; with value_norm in units of the returns' standard "
        "deviation; 0: no clipping",
        DETAILS + ", detail 9: no gain",
        minimum=0,
    )
    value_huber: float = setting(
        0.0,
        "threshold of the Huber value loss; 0: squared error",
        "Yu et al. 2022, section 5",
        minimum=0,
    )
    value_norm: Literal["no", "norm", "popart"] = setting(
        "no",
        "normalize value targets by running statistics; popart: also preserve the outputs",
        "van Hasselt et al. 2016",
    )
    max_kl: float = setting(
        0.0,
        "stop a rollout's updates beyond this KL divergence from the old policy; 0: never",
        DETAILS,
        minimum=0,
    )

    action_noise: gsde.Noise = gsde.choice()
    sde_sample_freq: int = gsde.sample_freq()


class PPO(OnPolicy):
    """Proximal policy optimization. `loss` is for one minibatch; `OnPolicy.prepare` computes
    advantages and returns once per rollout."""

    Settings = PPOSettings

    @classmethod
    def roles(cls, observation: Spec, action: Leaf, settings: PPOSettings) -> dict[str, Role]:
        roles = super().roles(observation, action, settings)
        if settings.value_norm == "no":
            return roles
        if settings.shared:
            raise SettingError(
                f"value_norm={settings.value_norm!r} is not supported with shared=True.",
                "a separate critic",
                "give value_norm='no' or shared=False.",
            )
        return roles | {
            "critic": replace(roles["critic"], head=(*roles["critic"].head, Denormalize()))
        }

    def __init__(
        self,
        backend: Backend,
        networks: dict[str, Source],
        observation: Spec,
        action: Leaf,
        settings: PPOSettings,
    ) -> None:
        super().__init__(backend, networks, observation, action, settings)
        self.optimizer = self._make_optimizer("ppo", self.networks)

    def loss(self, b: Batch) -> tuple[Array, dict[str, Array]]:
        """Return the negative of eq. 9 of the paper, [rows]:
        value_weight * (V - R)^2 - min(ratio * A, clip(ratio, 1 ± ε) * A) - entropy * H, where ratio
        is the new probability of the action divided by the old one, and R is GAE's A + V(old).
        In the loss, but not in R, A is standardized over the minibatch (`standardize_advantages`).
        `update` averages over the rows of the minibatch that count."""
        out, value = self.outputs(b)
        objective, kl, entropy = self.policy_terms(out, b)
        value_loss = self.value_loss(value, b.extra)
        loss = self.settings.value_weight * value_loss - objective
        aux = {"kl": kl, "value_loss": value_loss, "entropy": entropy}
        return self.with_curiosity(loss, aux, b)

    def policy_terms(self, out: Array, b: Batch) -> tuple[Array, Array, Array]:
        """Return (surrogate plus entropy bonus, KL estimate, entropy), [rows] each, from the
        actor's output."""
        log_ratio = self.policy.log_prob(out, b.action) - b.extra["log_prob"]
        ratio, clip = ops.of(log_ratio).exp(log_ratio), b.settings["clip"]
        entropy = self.policy.entropy(out)
        surrogate = clipped_surrogate(ratio, b.extra["advantage"], clip)  # eq. 7
        return surrogate + b.settings["entropy"] * entropy, kl_estimate(log_ratio), entropy

    def value_loss(self, value: Array, old: dict[str, Array]) -> Array:
        """Return (V - R)^2, [rows], without a factor of 1/2. `value_huber` replaces it by twice the
        Huber loss, `value_clip` by the maximum of the clipped and the unclipped loss. With
        `value_norm` it is in units of the returns' standard deviation."""
        s, clip = self.settings, self.settings.value_clip
        target, before = old["return"], old["value"]
        if s.value_norm != "no":
            value, target, before = (x / old["scale"] for x in (value, target, before))
        return self.sum_over_rewards(clipped_value_loss(value, before, target, clip, s.value_huber))

    def prepare(self, trajectory: Trajectory, networks: dict[str, Forward]) -> Batch:
        batch = super().prepare(trajectory, networks)
        if self.settings.value_norm != "no":
            returns = batch.extra["return"]
            if isinstance(returns, np.ndarray):  # in compiled runs all rows are valid
                returns = returns[batch.weight > 0]
            now = follow(self.critic, returns, self.settings.value_norm == "popart")
            scale = 0.0 * batch.weight + now.deviation
            batch.extra["scale"] = scale.astype(np.float32)
            # Value clipping is relative to the critic's current outputs: the change due to new
            # statistics must not count against the clip range.
            batch.extra["value"] = (now.ratio * batch.extra["value"] + now.shift).astype(np.float32)
        return batch

    def update(self, b: Batch) -> Update:
        s, xp, b = b.settings, ops.of(b.weight), self.steps(b)
        total = xp.sum(b.weight)  # the number of rows, less those that only reset an environment
        stop = (
            (lambda aux: xp.sum(aux["kl"] * b.weight) / total > self.settings.max_kl)
            if self.settings.max_kl
            else None
        )
        loss, aux = self.backend.minimize(
            self.optimizer,
            self.loss,
            b,
            s["learning_rate"],
            s["max_grad_norm"],
            count=total,
            stop=stop,
            over_batch=self.standardize_advantages,
        )
        return Update({"loss": loss, **{n: xp.sum(v * b.weight) / total for n, v in aux.items()}})

    def schedule(self, call: Call) -> dict[str, Array]:
        own = self.scheduled(call, "learning_rate", "clip", "entropy", "max_grad_norm")
        return own | super().schedule(call)
