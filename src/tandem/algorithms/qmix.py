"""QMIX (Rashid et al. 2018, arXiv:1803.11485): the value of a team's action is a monotonic mixture
of its agents' values, with weights that hypernetworks generate from the state. Without the mixer it
is independent Q-learning (Tan 1993)."""

from __future__ import annotations

from dataclasses import dataclass

from tandem import ops
from tandem.algorithms import teams
from tandem.algorithms.vdn import PYMARL, VDN, VDNSettings
from tandem.backends.backend import Network
from tandem.networks.defaults import Role, Source
from tandem.networks.plan import Cast, Dense, Streams
from tandem.settings import Needs, setting
from tandem.spaces import Leaf, Spec
from tandem.types import Array, Batch, Tree

PAPER = "Rashid et al. 2018, appendix A"


@dataclass(frozen=True)
class QMIXSettings(VDNSettings):
    """Settings of QMIX."""

    mixer: bool = setting(
        True,
        "mix the agents' values; off: each agent learns from its own rewards (IQL)",
        "Tan 1993",
    )
    embedding: int = setting(
        32,
        "hidden units of the mixing network",
        PAPER,
        minimum=1,
        needs=Needs(mixer=True),
    )
    hyper: int = setting(
        64,
        "hidden units of the hypernetworks that generate its weights; 0: no hidden layer",
        PYMARL,
        minimum=0,
        needs=Needs(mixer=True),
    )


class QMIX(VDN):
    Settings = QMIXSettings

    def mixers(self, networks: dict[str, Source]) -> None:
        if self.settings.mixer:
            mixer, target = self.backend.pair("mixer", networks["mixer"])
            self.learned.append(mixer)
            self.targets.append(target)

    @classmethod
    def roles(cls, observation: Spec, action: Leaf, settings: QMIXSettings) -> dict[str, Role]:
        roles = super().roles(observation, action, settings)
        if not settings.mixer:
            return roles
        assert isinstance(observation, dict)
        agents, units, state = teams.count(action), settings.embedding, observation[teams.STATE]
        hidden = (Dense(0, settings.hyper, "relu"),) if settings.hyper else ()
        hypernetworks = {
            "weight_1": (*hidden, Dense(settings.hyper, agents * units)),
            "bias_1": (Dense(0, units),),
            "weight_2": (*hidden, Dense(settings.hyper, units)),
            "bias_2": (Dense(0, units, "relu"), Dense(units, 1)),
        }
        return roles | {
            "mixer": Role(state, (Cast(state.width),), (Streams(hypernetworks),), ours=True)
        }

    def joint(
        self, mixer: Network, q: Array, obs: Tree, here: Array
    ) -> Array:  # eqs. 4 to 6, and figure 2
        xp, out, e, a = ops.of(q), mixer(obs[teams.STATE]), self.settings.embedding, self.agents
        # non-negative, so that the team's value increases with each agent's
        weight_1 = xp.abs(xp.reshape(out[:, : a * e], (-1, a, e)))
        bias_1 = out[:, a * e : a * e + e]
        weight_2 = xp.abs(out[:, a * e + e : a * e + 2 * e])
        bias_2 = out[:, -1]
        hidden = xp.elu(xp.sum((q * here)[..., None] * weight_1, 1) + bias_1)
        return xp.sum(hidden * weight_2, -1) + bias_2

    def errors(self, b: Batch, best: Array, chosen: Array) -> Array:
        if self.settings.mixer:
            return super().errors(b, best, chosen)
        # no bootstrap value for an agent that has left
        discount = b.discount[:, None] * teams.going(b.next_obs)
        y = ops.of(best).stop_gradient(b.extra["rewards"] + discount * best)
        return y - chosen

    def loss_of(self, b: Batch, errors: Array) -> tuple[Array, Array]:
        if self.settings.mixer:
            return super().loss_of(b, errors)
        xp = ops.of(errors)
        loss = xp.mean(teams.active(b.obs) * errors**2, -1)
        return loss, teams.mean(xp.abs(errors), b.obs)

    def buffer_extras(self, action: Leaf) -> dict[str, Leaf]:
        return super().buffer_extras(action) | (
            {} if self.settings.mixer else teams.rewards(action)
        )
