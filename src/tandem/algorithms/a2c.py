"""Advantage actor-critic (Mnih et al. 2016, arXiv:1602.01783): one gradient step per rollout of all
environments. It is A3C with synchronous workers, as in OpenAI Baselines."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Literal

from tandem import ops
from tandem.algorithms import curiosity, gsde
from tandem.algorithms.base import Backend, Call, Source
from tandem.algorithms.normalized import DETAILS
from tandem.algorithms.on_policy import A3C, JointSettings, OnPolicy
from tandem.settings import Schedule, Search, default, setting
from tandem.spaces import Leaf, Spec
from tandem.types import Array, Batch, Update

SB3 = "Stable-Baselines3 2.9 (A2C)"


@dataclass(frozen=True)
class A2CSettings(curiosity.CuriositySettings, JointSettings):
    """Settings of A2C."""

    rollout: int = default(5, A3C, search=Search(5, 256, "log"))
    learning_rate: Schedule = default(Schedule(7e-4), SB3)
    gae_lambda: float = default(
        1.0, A3C, help="lambda of generalized advantage estimation (GAE); 1: whole-rollout returns"
    )
    value_weight: float = setting(
        0.5, "weight of the value loss", DETAILS + ", detail 10", minimum=0
    )
    entropy: Schedule = setting(
        Schedule(0.01),
        "weight of the entropy bonus; accepts a schedule",
        A3C,
        minimum=-inf,
        search=Search(1e-8, 0.1, "log"),
    )
    normalize_advantage: bool = default(False, SB3)
    optimizer: Literal["adam", "rmsprop", "sgd"] = default("rmsprop", A3C)
    action_noise: gsde.Noise = gsde.choice()
    sde_sample_freq: int = gsde.sample_freq()


class A2C(OnPolicy):
    Settings = A2CSettings
    preparing = ("critic",)
    needs_old_policy = False

    def __init__(
        self,
        backend: Backend,
        networks: dict[str, Source],
        observation: Spec,
        action: Leaf,
        settings: A2CSettings,
    ) -> None:
        super().__init__(backend, networks, observation, action, settings)
        self.optimizer = self._make_optimizer("a2c", self.networks)

    def loss(self, b: Batch) -> tuple[Array, dict[str, Array]]:
        out, value = self.outputs(b)
        # section 4, algorithm S3
        score = self.policy.log_prob(out, b.action) * b.extra["advantage"]
        error = self.sum_over_rewards((value - b.extra["return"]) ** 2)
        entropy = self.policy.entropy(out)
        loss = self.settings.value_weight * error - score - b.settings["entropy"] * entropy
        return self.with_curiosity(loss, {"value_loss": error, "entropy": entropy}, b)

    def update(self, b: Batch) -> Update:
        s, xp, b = b.settings, ops.of(b.weight), self.steps(b)
        rows = xp.sum(b.weight)  # rows that only reset their environment have weight 0
        loss, aux = self.backend.minimize(
            self.optimizer,
            self.loss,
            b,
            s["learning_rate"],
            s["max_grad_norm"],
            rows,
            over_batch=self.standardize_advantages,
        )
        return Update({"loss": loss, **{n: xp.sum(v * b.weight) / rows for n, v in aux.items()}})

    def schedule(self, call: Call) -> dict[str, Array]:
        own = self.scheduled(call, "learning_rate", "entropy", "max_grad_norm")
        return own | super().schedule(call)
