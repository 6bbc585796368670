"""Importance-weighted actor-learner (Espeholt et al. 2018, arXiv:1802.01561): V-trace corrects
sequences collected by an older policy, including replayed ones (section 5.2.2)."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Literal

from tandem import ops
from tandem.algorithms.on_sequences import ActorCritic, SequenceSettings
from tandem.math.returns import vtrace
from tandem.settings import Schedule, default, setting
from tandem.spaces import Leaf
from tandem.types import Array, Batch

PAPER = "Espeholt et al. 2018, appendix D"


@dataclass(frozen=True)
class IMPALASettings(SequenceSettings):
    """Settings of IMPALA."""

    rollout: int = default(20, PAPER)
    learning_rate: Schedule = default(Schedule(6e-4, 0.0), PAPER)
    value_weight: float = setting(0.5, "weight of the value loss (squared error)", PAPER, minimum=0)
    entropy: Schedule = setting(
        Schedule(0.01), "weight of the entropy bonus; accepts a schedule", PAPER, minimum=-inf
    )
    rho: float = setting(
        1.0, "upper limit of importance weights in temporal differences", PAPER, minimum=0
    )
    c: float = setting(1.0, "upper limit of importance weights in traces", PAPER, minimum=0)
    replay: Literal["none", "uniform", "prioritized"] = default("uniform", PAPER)
    replay_ratio: float = default(1.0, PAPER)


class IMPALA(ActorCritic):
    Settings = IMPALASettings
    reported = ("value_loss", "entropy", "ratio")

    @staticmethod
    def behavior(action: Leaf) -> dict[str, tuple[int, ...]]:
        return {"log_prob": ()}

    def behavior_outputs(self, out: Array, action: Array) -> dict[str, Array]:
        return {"log_prob": self.policy.log_prob(out[..., :-1], action)}

    def losses(self, out: Array, b: Batch) -> tuple[Array, dict[str, Array]]:
        s, xp, q = self.settings, ops.of(out), self.sequences(b)
        policy, value = out[:-1, :, :-1], out[..., -1]
        known = xp.stop_gradient(value)
        reward = q.rewards(known[:-1])
        log_prob = self.policy.log_prob(policy, q.action)
        ratio = xp.exp(xp.stop_gradient(log_prob) - q.extra["log_prob"])
        # eq. 1
        target, advantage = vtrace(
            reward, q.discount, q.last, known[:-1], known[-1], ratio, s.rho, s.c
        )
        error, entropy = target - value[:-1], self.policy.entropy(policy)
        # section 4.2
        loss = s.value_weight * error**2 - log_prob * advantage - b.settings["entropy"] * entropy
        return loss, {"value_loss": error**2, "entropy": entropy, "ratio": ratio, "error": error}
