"""Advantage actor-critic as its asynchronous workers learn (Mnih et al. 2016, arXiv:1602.01783,
section 4, algorithm S3): losses of sequences, with returns that bootstrap from the value after the
sequence. Here all workers step together; see a2c.py for GAE."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from tandem import ops
from tandem.algorithms.on_sequences import ActorCritic, SequenceSettings
from tandem.math.returns import multi_step
from tandem.settings import Schedule, default, setting
from tandem.types import Array, Batch

PAPER = "Mnih et al. 2016, section 5.1 and supplement"


@dataclass(frozen=True)
class A3CSettings(SequenceSettings):
    """Settings of A3C."""

    rollout: int = default(5, PAPER)
    learning_rate: Schedule = default(Schedule(7e-4), "Stable-Baselines3 2.9 (A2C)")
    value_weight: float = setting(1.0, "weight of the value loss (squared error)", PAPER, minimum=0)
    entropy: Schedule = setting(
        Schedule(0.01), "weight of the entropy bonus; accepts a schedule", PAPER, minimum=-inf
    )


class A3C(ActorCritic):
    Settings = A3CSettings
    reported = ("value_loss", "entropy")

    def losses(self, out: Array, b: Batch) -> tuple[Array, dict[str, Array]]:
        s, xp, q = self.settings, ops.of(out), self.sequences(b)
        policy, value = out[:-1, :, :-1], out[..., -1]
        known = xp.stop_gradient(value)
        reward = q.rewards(known[:-1])
        error = multi_step(reward, q.discount, q.last, known[-1]) - value[:-1]
        entropy = self.policy.entropy(policy)
        score = self.policy.log_prob(policy, q.action) * xp.stop_gradient(error)
        loss = s.value_weight * error**2 - score - b.settings["entropy"] * entropy
        return loss, {"value_loss": error**2, "entropy": entropy, "error": error}
