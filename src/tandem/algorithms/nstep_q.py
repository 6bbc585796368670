"""Multi-step Q-learning from sequences (Mnih et al. 2016, arXiv:1602.01783, algorithm S2), with
double targets (van Hasselt et al. 2016, arXiv:1509.06461) and dueling networks (Wang et al. 2016,
arXiv:1511.06581); n-step SARSA and expected SARSA (Sutton & Barto 2018, section 7.2). dqn.py learns
from single transitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tandem import ops
from tandem.algorithms import action_spaces, base, sarsa
from tandem.algorithms.base import Call, Forward, Source
from tandem.algorithms.dqn import SB3
from tandem.algorithms.on_sequences import OnSequences, SequenceSettings
from tandem.errors import SettingError
from tandem.math.returns import multi_step
from tandem.math.values import huber
from tandem.networks.plan import Dense, Dueling, Half, Plan
from tandem.settings import Schedule, default, setting
from tandem.spaces import Leaf, Spec
from tandem.types import Array, Batch, Trajectory, Tree, tree_map

PAPER = "Mnih et al. 2016, section 5.1 and supplement"


@dataclass(frozen=True)
class NStepQSettings(SequenceSettings):
    """Settings of n-step Q-learning."""

    rollout: int = default(5, PAPER)
    learning_rate: Schedule = default(Schedule(7e-4))
    epsilon: Schedule = setting(
        Schedule(1.0, 0.05, 0.1),
        "probability of a random action; accepts a schedule",
        SB3,
        minimum=0,
        maximum=1,
    )
    double: bool = setting(
        True,
        "double Q-learning: the network selects the last action, the target evaluates it",
        "van Hasselt et al. 2016",
    )
    dueling: bool = setting(
        False,
        "dueling networks: streams for value and advantages, each on half of the features",
        "Wang et al. 2016",
    )
    target_updates: int = setting(
        1000, "updates between copies to the target network", "drlbox 1.16", minimum=1
    )
    bootstrap: Literal["max", "sarsa", "expected"] = sarsa.bootstrap()


class NStepQ(sarsa.EpsilonGreedy, OnSequences):
    Settings = NStepQSettings
    preparing = ("net", "net_target")
    valued = True
    reported = ("q",)

    def make(self, source: Source) -> None:
        self.net, self.target = self.backend.pair("net", source)

    @classmethod
    def check(cls, observation: Spec, action: Leaf, settings: NStepQSettings) -> None:
        action_spaces.discrete("nstep_q", action)
        if settings.bootstrap != "sarsa":
            return
        if settings.replay != "none":
            raise SettingError(
                f"bootstrap='sarsa' is not supported with replay={settings.replay!r}.",
                "new sequences only: in older ones the next action is an older policy's",
                "give replay='none', or bootstrap='expected', which uses the current policy.",
            )
        if settings.rollout < 2:
            raise SettingError(
                f"bootstrap='sarsa' is not supported with rollout={settings.rollout}.",
                "sequences of at least 2 steps: the last one provides the next action",
                "give rollout=2 or more.",
            )
        if not settings.double:
            raise SettingError(
                "bootstrap='sarsa' is not supported with double=False.",
                "double=True: the network chose the action, and the target values it",
                "leave double out, or give bootstrap='expected' or 'max'.",
            )

    @classmethod
    def head(cls, action: Leaf, settings: NStepQSettings) -> Plan:
        if not settings.dueling:
            return (Dense(0, action.sizes[0]),)
        units = max(1, settings.hidden[-1] // 2) if settings.hidden else 64
        hidden = Dense(0, units, settings.activation)
        return (
            Dueling(
                *(
                    (Half(0, second), hidden, Dense(units, n))
                    for second, n in ((False, 1), (True, action.sizes[0]))
                )
            ),
        )

    def value(self, out: Array) -> Array:
        xp = ops.of(out)
        return xp.take(out, xp.argmax(out, -1))

    def policy_value(self, q: Array, later: Array, obs: Tree, epsilon: Array | None) -> Array:
        """Return the values of observations [...] from the target's action values `later` [..., A],
        for the best action by the network's `q` (`double`) or by `later`. With bootstrap="sarsa" or
        "expected" it is the mean over the policy, which is random with probability `epsilon`."""
        s = self.settings
        chance = None if s.bootstrap == "max" else epsilon
        return sarsa.policy_value(later, q if s.double else later, obs, self.leaf, chance)

    def bootstrap_value(self, said: dict[str, Array], obs: Tree, kept: dict[str, Array]) -> Array:
        return self.policy_value(said["net"], said["net_target"], obs, kept.get("epsilon"))

    def prepare(self, trajectory: Trajectory, networks: dict[str, Forward]) -> Batch:
        """With `bootstrap="sarsa"` a last step that did not end its episode has weight 0: it only
        provides the bootstrap value of the steps before it."""
        batch = super().prepare(trajectory, networks)
        if self.settings.bootstrap == "sarsa":
            batch.weight[-2] *= batch.extra["last"][-2]
        return batch

    def losses(self, out: Array, b: Batch) -> tuple[Array, dict[str, Array]]:
        xp, batch = ops.of(out), self.sequences(b)
        q = xp.take(out[:-1], batch.action)
        later = xp.stop_gradient(self.over_time(self.output(self.target, b)))
        if self.settings.bootstrap == "sarsa":
            own = xp.take(later[:-1], batch.action)
            # the last step's own value replaces its reward, unless an episode ended there
            ahead = xp.where(batch.last[-1], batch.reward[-1], own[-1])
            reward, after = xp.concat([batch.reward[:-1], ahead[None]], 0), 0.0 * own[-1]
        else:
            obs = tree_map(self.over_time, b.obs)
            value = self.policy_value(xp.stop_gradient(out), later, obs, b.settings.get("epsilon"))
            reward, after = batch.rewards(value[:-1]), value[-1]
        error = multi_step(reward, batch.discount, batch.last, after) - q
        return huber(error), {"error": error, "q": q}

    def follow(self, settings: dict[str, Array]) -> None:
        self.backend.soft_update(self.net, self.target, settings["tau"], seldom=True)

    def schedule(self, call: Call) -> dict[str, Array]:
        due = base.each_nth(call, self.settings.target_updates)
        names = ("epsilon",) if self.settings.bootstrap == "expected" else ()
        return {**self.scheduled(call, "learning_rate", "max_grad_norm", *names), "tau": due}
