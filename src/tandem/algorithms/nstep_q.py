"""Multi-step Q-learning from sequences (Mnih et al. 2016, arXiv:1602.01783, algorithm S2), with
double targets (van Hasselt et al. 2016, arXiv:1509.06461) and dueling networks (Wang et al. 2016,
arXiv:1511.06581). dqn.py learns from single transitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tandem import ops
from tandem.algorithms import base
from tandem.algorithms.base import Call, Forward
from tandem.algorithms.dqn import DQN, SB3, epsilon_greedy
from tandem.algorithms.on_sequences import OnSequences, SequenceSettings
from tandem.math.masks import masked
from tandem.math.returns import multi_step
from tandem.math.values import huber
from tandem.networks.plan import Dense, Dueling, Half, Plan
from tandem.settings import Schedule, default, setting
from tandem.spaces import Leaf, Spec
from tandem.types import Array, Batch, Tree

PAPER = "Mnih et al. 2016, section 5.1 and supplement"


@dataclass(frozen=True)
class NStepQSettings(SequenceSettings):
    """What n-step Q-learning can be told."""

    rollout: int = default(5, PAPER)
    learning_rate: Schedule = default(Schedule(7e-4))
    epsilon: Schedule = setting(
        Schedule(1.0, 0.05, 0.1),
        "probability of a random action; a schedule",
        SB3,
        minimum=0,
        maximum=1,
    )
    double: bool = setting(
        True,
        "choose the last action by the network, value it by the target",
        "van Hasselt et al. 2016",
    )
    dueling: bool = setting(
        False, "streams for value and advantages, each on half of the features", "Wang et al. 2016"
    )
    target_updates: int = setting(
        1000, "updates between copies to the target network", "drlbox 1.16", minimum=1
    )


class NStepQ(OnSequences):
    Settings = NStepQSettings
    preparing = ("net", "net_target")
    valued = True
    reported = ("q",)

    def make(self, source: Any) -> None:
        self.net, self.target = self.backend.pair("net", source)

    @classmethod
    def check(cls, observation: Spec, action: Leaf, settings: Any) -> None:
        base.discrete("nstep_q", action)

    @classmethod
    def head(cls, action: Leaf, settings: Any) -> Plan:
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

    def best(self, q: Array, later: Array) -> Array:
        """The target's values `later` [..., A] of the best actions, by the network's `q` or their
        own."""
        xp = ops.of(q)
        return xp.take(later, xp.argmax(q if self.settings.double else later, -1))

    def bootstrap_value(self, out: Array, obs: Tree, networks: dict[str, Forward]) -> Array:
        return self.best(out, self.allowed(networks["net_target"](obs), obs))

    def losses(self, out: Array, b: Batch) -> tuple[Array, dict[str, Array]]:
        xp, batch = ops.of(out), self.sequences(b)
        q = xp.take(out[:-1], batch.action)
        later = xp.stop_gradient(self.over_time(self.output(self.target, b.obs)))
        best = self.best(xp.stop_gradient(out), later)
        reward = batch.rewards(best[:-1])
        error = multi_step(reward, batch.discount, batch.last, best[-1]) - q
        return huber(error), {"error": error, "q": q}

    def follow(self, settings: dict[str, Array]) -> None:
        self.backend.soft_update(self.net, self.target, settings["tau"], seldom=True)

    def schedule(self, call: Call) -> dict[str, Array]:
        updates = call.updates + 1 + np.arange(len(call.progress))
        due = (updates % self.settings.target_updates == 0).astype(np.float32)
        return {**self.scheduled(call, "learning_rate", "max_grad_norm"), "tau": due}

    @classmethod
    def exploration_noise(
        cls,
        settings: Any,
        action: Leaf,
        rng: np.random.Generator,
        shape: tuple[int, ...],
        progress: Array,
    ) -> Tree:
        return DQN.exploration_noise(settings, action, rng, shape, progress)

    @classmethod
    def act(
        cls,
        settings: Any,
        action: Leaf,
        networks: dict[str, Forward],
        obs: Tree,
        state: Tree,
        noise: Tree,
    ) -> tuple[Array, dict[str, Array], Tree]:
        def q() -> Array:
            return masked(networks["net"](obs), obs, action)

        return epsilon_greedy(q, obs, action, noise), {}, state
