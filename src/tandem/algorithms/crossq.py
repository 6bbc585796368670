"""CrossQ (Bhatt et al. 2024, arXiv:1902.05605): soft actor-critic without target networks. Its
critics process current and next state-action pairs in one batch, normalized together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from tandem import ops
from tandem.algorithms import base, critics, name_of
from tandem.algorithms.base import Call
from tandem.algorithms.sac import SAC, SoftSettings
from tandem.errors import SettingError
from tandem.math.action_values import CategoricalValues
from tandem.networks.defaults import Role
from tandem.networks.renorm import renormalized
from tandem.networks.unit import projected
from tandem.settings import Needs, Schedule, default, setting
from tandem.spaces import Leaf, Spec
from tandem.types import Array, Batch, tree_map

PAPER = "Bhatt et al. 2024, appendix A.2, table 2"
NORMED = "dense layers followed by batch renormalization"


@dataclass(frozen=True)
class CrossQSettings(critics.CriticSettings, SoftSettings):
    """Settings of CrossQ."""

    lacks: ClassVar[dict[str, str]] = {
        "body": NORMED,
        "layer_norm": NORMED,
        "recurrent": "feed-forward networks: one pass normalizes steps and next steps together, "
        "but next steps would need the recurrent states of that pass (sac has them)",
    }

    learning_rate: Schedule = default(Schedule(1e-3), PAPER)
    critic_hidden: tuple[int, ...] = default(
        (),
        help="hidden layer widths of the critics, if different from hidden; the paper uses "
        "2048,2048",
    )
    adam_beta1: float = setting(
        0.5,
        "beta1 of Adam (first-moment decay)",
        PAPER,
        minimum=0,
        maximum=0.9999,
        needs=Needs(optimizer="adam"),
    )
    policy_delay: int = setting(
        3, "critic updates per update of the policy and the temperature", PAPER, minimum=1
    )
    renorm_momentum: float = setting(
        0.99,
        "momentum of the running statistics of batch renormalization",
        PAPER,
        minimum=0,
        maximum=1,
    )
    renorm_warmup: int = setting(
        100_000,
        "updates of each network with plain batch normalization before renormalization",
        PAPER,
        minimum=0,
    )
    weight_projection: bool = setting(
        False,
        "project the weights of each hidden unit of the critics to length 1 after every update; "
        "the following batch renormalization compensates for the scale",
        "Palenicek et al. 2025 (XQC)",
    )


class CrossQ(SAC):
    Settings = CrossQSettings

    @classmethod
    def check(cls, observation: Spec, action: Leaf, settings: CrossQSettings) -> None:
        super().check(observation, action, settings)
        base.refuse_lacking(name_of(cls), settings)
        if settings.weight_projection and settings.weight_norm:
            raise SettingError(
                "crossq does not support weight_projection=True with weight_norm=True.",
                "one of them: learned weight lengths, or lengths of 1",
                "leave weight_norm out.",
            )

    @classmethod
    def roles(cls, observation: Spec, action: Leaf, settings: CrossQSettings) -> dict[str, Role]:
        s, roles = settings, super().roles(observation, action, settings)
        if s.weight_projection:
            q = replace(roles["q1"], body=projected(roles["q1"].body))
            roles |= {"q1": q, "q2": q}
        return {
            name: replace(role, body=renormalized(role.body, s.renorm_momentum, s.renorm_warmup))
            for name, role in roles.items()
        }

    def critic_loss(self, b: Batch) -> tuple[Array, dict[str, Array]]:
        """Return SAC's loss, [B], with the critics themselves in place of targets (section 3,
        figure 2)."""
        xp = ops.of(b.reward)
        now, _ = self.views(b)
        action, log_prob = self.sample(now, b.next_obs, b.noise[0])
        # one pass over both halves, so that the same mean and variance normalize both
        obs = tree_map(lambda *halves: xp.concat(halves, 0), b.obs, b.next_obs)
        action, rows = xp.concat([b.action, action], 0), b.reward.shape[0]
        if isinstance(self.values, CategoricalValues):
            out = self.outputs(self.qs, now, obs, action)
            own, later = [x[:rows] for x in out], [x[rows:] for x in out]
            return self.categorical_loss(b, own, later, log_prob[..., None])
        both = self.value(self.qs, now, obs, action)
        least = xp.minimum(*(q[rows:] for q in both))
        y = self.soft_target(b, least - xp.exp(self.log_alpha()) * log_prob)
        return self.squared_loss(y, *(q[:rows] for q in both))

    def update_policy(self, b: Batch) -> dict[str, Array]:
        """Update policy and temperature as SAC does, if the update is a `policy_delay`-th one."""
        update, names = super().update_policy, ("actor_loss", "entropy")
        return self.backend.cond(b.settings["policy"], lambda: update(b), names)

    def schedule(self, call: Call) -> dict[str, Array]:
        due = base.each_nth(call, self.settings.policy_delay)
        return {**super().schedule(call), "policy": due}
