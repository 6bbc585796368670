"""Truncated quantile critics (Kuznetsov et al. 2020, arXiv:2005.04269): soft actor-critic whose
critics estimate quantiles of returns. Targets drop the highest quantiles."""

from __future__ import annotations

from dataclasses import dataclass

from tandem import ops
from tandem.algorithms import bodies, priorities
from tandem.algorithms.sac import SAC, SoftSettings, TargetSettings
from tandem.errors import SettingError
from tandem.math.value_distributions import fractions, quantile_huber
from tandem.networks.defaults import Role
from tandem.settings import Search, default, setting
from tandem.spaces import Leaf, Spec
from tandem.types import Array, Batch

PAPER = "Kuznetsov et al. 2020, appendix B, table 5"
CONTRIB = "sb3-contrib 2.9 (TQC)"


@dataclass(frozen=True)
class TQCSettings(TargetSettings, SoftSettings):
    """Settings of TQC."""

    steps: int = default(1_000_000, PAPER)
    hidden: tuple[int, ...] = default((256, 256), CONTRIB)
    batch_size: int = default(256, PAPER)
    critics: int = setting(2, "number of critics; the paper uses 5", CONTRIB, minimum=1)
    quantiles: int = setting(
        25, "number of quantiles per critic", PAPER, minimum=1, search=Search(5, 50)
    )
    dropped: int = setting(
        2,
        "number of quantiles per critic dropped from targets, the highest first",
        PAPER,
        minimum=0,
        search=Search(0, 4),
    )


class TQC(SAC):
    Settings = TQCSettings

    @classmethod
    def check(cls, observation: Spec, action: Leaf, settings: TQCSettings) -> None:
        super().check(observation, action, settings)
        if settings.dropped >= settings.quantiles:
            raise SettingError(
                f"dropped={settings.dropped} with quantiles={settings.quantiles}.",
                "fewer dropped than quantiles, so that targets keep some",
                f"give dropped={settings.quantiles // 10}.",
            )

    @classmethod
    def roles(cls, observation: Spec, action: Leaf, settings: TQCSettings) -> dict[str, Role]:
        q = bodies.action_value(observation, action, settings, settings.quantiles)
        actor = super().roles(observation, action, settings)["actor"]
        return {"actor": actor, **{f"q{i + 1}": q for i in range(settings.critics)}}

    def critic_loss(self, b: Batch) -> tuple[Array, dict[str, Array]]:
        """Return the quantile Huber loss of each critic against the same targets, [B]: the pooled
        target quantiles without the largest (eqs. 6 to 11). As in the authors' code, it is averaged
        over critics."""
        xp, s, (now, next_) = ops.of(b.reward), self.settings, self.views(b)
        action, log_prob = self.sample(next_, b.next_obs, b.noise[0])
        pooled = xp.concat(self.outputs(self.targets, next_, b.next_obs, action), -1)
        kept = xp.smallest(pooled, s.critics * (s.quantiles - s.dropped))
        next_value = kept - (xp.exp(self.log_alpha()) * log_prob)[..., None]
        y = xp.stop_gradient(self.soft_reward(b)[..., None] + b.discount[..., None] * next_value)
        own = self.outputs(self.qs, now, b.obs, b.action)
        losses = [quantile_huber(q, fractions(q), y) for q in own]
        means = [xp.mean(q, -1) for q in own]
        errors = priorities.mean_error(s, *(mean - xp.mean(y, -1) for mean in means))
        return sum(losses) / (s.critics * s.quantiles), {"q": means[0], **errors}

    def actor_loss(self, b: Batch) -> tuple[Array, dict[str, Array]]:
        """Return alpha * log pi(a | s) - mean of all critics' quantiles, [B] (eq. 12)."""
        xp, (now, _) = ops.of(b.reward), self.views(b)
        action, log_prob = self.sample(now, b.obs, b.noise[1])
        q = xp.mean(xp.concat(self.outputs(self.qs, now, b.obs, action), -1), -1)
        return xp.stop_gradient(xp.exp(self.log_alpha())) * log_prob - q, {"entropy": -log_prob}
