"""Actor-critic with experience replay (Wang et al. 2017, arXiv:1611.01224): Retrace targets,
importance ratios truncated with bias correction, and a policy kept close to an average of past
policies. For discrete actions."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Literal

from tandem import ops
from tandem.algorithms import action_spaces
from tandem.algorithms.base import Call, Source
from tandem.algorithms.on_sequences import ActorCritic, SequenceSettings
from tandem.math.returns import retrace
from tandem.networks.plan import Dense, Plan, Streams
from tandem.settings import Needs, Schedule, default, setting
from tandem.spaces import Leaf, Spec
from tandem.types import Array, Batch

PAPER = "Wang et al. 2017, section 5.1 and appendix A"
FLOOR = 1e-6  # minimum probability, which keeps ratios finite


@dataclass(frozen=True)
class ACERSettings(SequenceSettings):
    """Settings of ACER."""

    rollout: int = default(20, PAPER)
    learning_rate: Schedule = default(Schedule(7e-4), PAPER)
    value_weight: float = setting(
        0.5, "weight of the critic loss (squared error)", PAPER, minimum=0
    )
    entropy: Schedule = setting(
        Schedule(0.001), "weight of the entropy bonus; accepts a schedule", PAPER, minimum=-inf
    )
    truncation: float = setting(
        10.0,
        "truncation c of importance weights; the bias correction covers the rest",
        PAPER,
        minimum=0,
    )
    kl: float = setting(
        0.1,
        "weight of the KL divergence from the average policy; 0: no average policy",
        "drlbox 1.16",
        minimum=0,
    )
    average_tau: float = setting(
        0.01,
        "soft update coefficient of the average policy network",
        PAPER,
        minimum=0,
        maximum=1,
        needs=Needs(kl=0.1),
    )
    replay: Literal["none", "uniform", "prioritized"] = default("uniform", PAPER)


class ACER(ActorCritic):
    Settings = ACERSettings
    reported = ("value_loss", "entropy", "kl", "ratio")

    def make(self, source: Source) -> None:
        if self.settings.kl:
            self.net, self.average = self.backend.pair("net", source)
        else:
            super().make(source)

    @classmethod
    def check(cls, observation: Spec, action: Leaf, settings: SequenceSettings) -> None:
        action_spaces.discrete("acer", action)

    @classmethod
    def head(cls, action: Leaf, settings: SequenceSettings) -> Plan:
        n = action.sizes[0]
        policy = Dense(0, n, "linear", "orthogonal", 0.01)
        value = Dense(0, n, "linear", "orthogonal")
        return (Streams({"policy": (policy,), "value": (value,)}),)

    @staticmethod
    def behavior(action: Leaf) -> dict[str, tuple[int, ...]]:
        return {"probabilities": action.sizes}

    def behavior_outputs(self, out: Array, action: Array) -> dict[str, Array]:
        return {"probabilities": self.probabilities(out)}

    def probabilities(self, out: Array) -> Array:
        """Return the probabilities of all actions, [..., A]; none is zero."""
        xp, n = ops.of(out), self.policy.width
        p = xp.exp(xp.log_softmax(out[..., :n]))
        return xp.clip(p - FLOOR / n, FLOOR, 1.0)

    def value(self, out: Array) -> Array:
        return ops.of(out).sum(self.probabilities(out) * out[..., self.policy.width :], -1)

    def losses(self, out: Array, b: Batch) -> tuple[Array, dict[str, Array]]:
        s, xp, batch = self.settings, ops.of(out), self.sequences(b)
        p, q = self.probabilities(out), out[..., self.policy.width :]
        log_p, taken = xp.log(p[:-1]), xp.take(q[:-1], batch.action)
        pi, known = xp.stop_gradient(p), xp.stop_gradient(q)
        value = xp.stop_gradient(self.value(out))
        pi, known = pi[:-1], known[:-1]
        ratios = pi / batch.extra["probabilities"]
        ratio, own = xp.take(ratios, batch.action), xp.stop_gradient(taken)
        reward = batch.rewards(own)
        # eq. 5
        target = retrace(reward, batch.discount, batch.last, own, value[:-1], value[-1], ratio)
        gain = xp.clip(ratio, 0.0, s.truncation) * (target - value[:-1])
        correction = (
            xp.clip(1.0 - s.truncation / ratios, 0.0, 1.0) * pi * (known - value[:-1][..., None])
        )
        policy_loss = -gain * xp.take(log_p, batch.action) - xp.sum(correction * log_p, -1)  # eq. 9
        error, entropy = target - taken, -xp.sum(p[:-1] * log_p, -1)
        loss = policy_loss + s.value_weight * error**2 - b.settings["entropy"] * entropy
        aux = {
            "value_loss": error**2,
            "entropy": entropy,
            "ratio": ratio,
            "error": error,
            "kl": 0.0 * entropy,
        }
        if s.kl:
            average = self.probabilities(
                xp.stop_gradient(self.over_time(self.output(self.average, b)))[:-1]
            )
            aux["kl"] = xp.sum(average * (xp.log(average) - log_p), -1)
            loss = loss + s.kl * aux["kl"]
        return loss, aux

    def follow(self, settings: dict[str, Array]) -> None:
        if self.settings.kl:
            self.backend.soft_update(self.net, self.average, settings["average_tau"])

    def schedule(self, call: Call) -> dict[str, Array]:
        return {**super().schedule(call), **self.scheduled(call, "average_tau")}
