"""Deep Q-learning (Mnih et al. 2015, doi:10.1038/nature14236), with double targets (van Hasselt et
al. 2016, arXiv:1509.06461), dueling networks (Wang et al. 2016, arXiv:1511.06581), n-step returns
(Hessel et al. 2018, arXiv:1710.02298, section 3) and prioritized replay (Schaul et al. 2016,
arXiv:1511.05952)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tandem import ops
from tandem.algorithms import base
from tandem.algorithms.base import Call, Forward
from tandem.math.masks import evenly, masked
from tandem.math.values import huber, q_learning
from tandem.networks.defaults import Role, mlp
from tandem.networks.plan import Dense, Dueling
from tandem.settings import Schedule, default, setting
from tandem.spaces import Leaf, Spec, seen
from tandem.types import Array, Batch, Tree, Update

ATARI = "Mnih et al. 2015, extended data table 1"
SB3 = "Stable-Baselines3 2.9 (DQN)"


@dataclass(frozen=True)
class DQNSettings(base.ReplaySettings):
    """What DQN can be told."""

    learning_rate: Schedule = default(Schedule(1e-4), SB3, help="step size of Adam; a schedule")
    activation: str = default("relu", ATARI)
    batch_size: int = default(32, ATARI)
    buffer_size: int = default(1_000_000, ATARI)
    learning_starts: int = default(100, SB3, help="environment steps before the first update")
    train_every: int = default(4, ATARI)
    updates_per_call: int = default(1, ATARI)
    target_every: int = setting(
        10_000, "environment steps between copies to the target network", SB3, minimum=1
    )
    tau: float = setting(
        1.0, "how much of the network a copy takes over", ATARI, minimum=0, maximum=1
    )
    epsilon: Schedule = setting(
        Schedule(1.0, 0.05, 0.1),
        "probability of a random action; a schedule",
        SB3,
        minimum=0,
        maximum=1,
    )
    double: bool = setting(
        True,
        "choose the next action by the network, value it by the target",
        "van Hasselt et al. 2016",
    )
    dueling: bool = setting(False, "separate streams for value and advantages", "Wang et al. 2016")
    n_step: int = setting(1, "steps of reward before bootstrapping", ATARI, minimum=1)
    prioritized: bool = setting(
        False, "draw transitions by their error instead of evenly", "Schaul et al. 2016"
    )
    priority_alpha: float = setting(
        0.6,
        "exponent of priorities",
        "Schaul et al. 2016, table 3 (proportional)",
        minimum=0,
        maximum=1,
    )
    priority_beta: Schedule = setting(
        Schedule(0.4, 1.0),
        "exponent of importance weights; a schedule",
        "Schaul et al. 2016",
        minimum=0,
        maximum=1,
    )
    max_grad_norm: float = setting(
        10.0, "gradients are clipped to this global norm", SB3, above=0, fix="try 0.5."
    )


class DQN(base.Algorithm):
    Settings = DQNSettings
    needs = "transitions"
    acting = ("q",)
    valued = True

    def __init__(
        self,
        backend: Any,
        networks: dict[str, Any],
        observation: Spec,
        action: Leaf,
        settings: DQNSettings,
    ) -> None:
        self.backend, self.settings, self.action = backend, settings, action
        self.q, self.target = backend.pair("q", networks["q"])
        self.optimizer = backend.optimizer(
            "q", [self.q], settings.optimizer, **base.optimizer_options(settings)
        )

    @classmethod
    def check(cls, observation: Spec, action: Leaf, settings: Any) -> None:
        base.discrete("dqn", action)

    @classmethod
    def roles(cls, observation: Spec, action: Leaf, settings: DQNSettings) -> dict[str, Role]:
        body = mlp(seen(observation, action), settings.hidden, settings.activation)
        head: tuple[Any, ...] = (Dense(0, action.sizes[0]),)
        if settings.dueling:
            last = body[-1]
            # each stream has a hidden layer of its own, as wide as the body's last one
            hidden = (replace(last, inputs=0),) if isinstance(last, Dense) else ()
            units = last.units if isinstance(last, Dense) else 0
            head = (Dueling(*((*hidden, Dense(units, n)) for n in (1, action.sizes[0]))),)
        return {"q": Role(observation, body, head)}

    def loss(self, b: Batch) -> tuple[Array, dict[str, Array]]:
        # what is forbidden there is no maximum
        after = masked(self.target(b.next_obs), b.next_obs, self.action)
        selector = (
            masked(self.q(b.next_obs, training=False), b.next_obs, self.action)
            if self.settings.double
            else None
        )
        td = q_learning(self.q(b.obs), b.action, b.reward, b.discount, after, selector)
        return huber(td), {"td": td}

    def update(self, b: Batch) -> Update:
        s = b.settings
        loss, aux = self.backend.minimize(
            self.optimizer, self.loss, b, s["learning_rate"], s["max_grad_norm"]
        )
        self.backend.soft_update(self.q, self.target, s["tau"], seldom=True)
        return Update({"loss": loss}, priority=aux["td"] if self.settings.prioritized else ())

    def schedule(self, call: Call) -> dict[str, Array]:
        return {
            **self.scheduled(call, "learning_rate", "max_grad_norm"),
            "tau": base.copies(self.settings, call),
        }

    @classmethod
    def exploration_noise(
        cls,
        settings: Any,
        action: Leaf,
        rng: np.random.Generator,
        shape: tuple[int, ...],
        progress: Array,
    ) -> Tree:
        """Whether each action is random, and which one it would be; where actions have masks, the
        numbers to draw it by."""
        explore = rng.random(shape) < settings.epsilon(progress)[:, None]
        if action.masked:
            return explore, rng.random((*shape, action.width), dtype=np.float32)
        return explore, rng.integers(action.sizes[0], size=shape)

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
        if noise is None:
            return masked(networks["q"](obs), obs, action).argmax(-1), {}, state
        explore, drawn = noise
        random = evenly(drawn, obs, action) if action.masked else drawn
        if isinstance(explore, np.ndarray) and explore.all():
            return random, {}, state
        greedy = masked(networks["q"](obs), obs, action).argmax(-1)
        return ops.of(greedy).where(explore, random, greedy), {}, state
