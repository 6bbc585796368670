"""Twin delayed deep deterministic policy gradient (Fujimoto et al. 2018, arXiv:1802.09477): the
minimum of two critics, target policy smoothing, and delayed policy updates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tandem import ops
from tandem.algorithms import base, critics, gsde, priorities, recurrent_replay
from tandem.algorithms.base import Backend, Call, Source
from tandem.algorithms.deterministic import Deterministic, Noise, action_noise
from tandem.settings import Needs, Schedule, Search, default, setting
from tandem.spaces import Leaf, Spec
from tandem.types import Array, Batch, Tree, Update

PAPER = "Fujimoto et al. 2018, section 6.1"
TABLE = "Fujimoto et al. 2018, appendix C, table 3"
CODE = "the authors' code, 2nd version"


@dataclass(frozen=True)
class TD3Settings(recurrent_replay.TransitionSettings):
    """Settings of TD3."""

    steps: int = default(1_000_000, PAPER)
    learning_rate: Schedule = default(
        Schedule(3e-4), CODE, help="learning rate of both optimizers; accepts a schedule"
    )
    hidden: tuple[int, ...] = default((256, 256), CODE)
    critic_hidden: tuple[int, ...] = critics.hidden()
    activation: str = default("relu", TABLE)
    batch_size: int = default(256, CODE, search=Search(16, 1024, "powers of two"))
    buffer_size: int = default(1_000_000, TABLE, search=Search(10_000, 1_000_000, "log"))
    learning_starts: int = default(10_000, PAPER, search=Search(100, 20_000, "log"))
    exploration: Schedule = setting(
        Schedule(0.1),
        "standard deviation of the exploration noise (actions within ±1); accepts a schedule",
        PAPER,
        minimum=0,
        search=Search(0.0, 1.0),
    )
    action_noise: Noise = action_noise()
    sde_sample_freq: int = gsde.sample_freq()
    n_step: int = base.n_step()
    policy_delay: int = setting(
        2, "critic updates per update of the policy and the targets", PAPER, minimum=1
    )
    smoothing: float = setting(
        0.2, "standard deviation of target policy smoothing noise", PAPER, minimum=0
    )
    smoothing_clip: float = setting(
        0.5,
        "clipping threshold of the smoothing noise",
        PAPER,
        minimum=0,
        needs=Needs(smoothing=0.2),
    )
    tau: float = setting(
        0.005,
        "soft update coefficient of the target networks, every policy_delay updates",
        TABLE,
        minimum=0,
        maximum=1,
        search=Search(1e-3, 0.1, "log"),
    )


class TD3(Deterministic):
    Settings = TD3Settings
    critics = ("q1", "q2")

    def __init__(
        self,
        backend: Backend,
        networks: dict[str, Source],
        observation: Spec,
        action: Leaf,
        settings: TD3Settings,
    ) -> None:
        self.backend, self.settings, self.size = backend, settings, action.width
        self.actor, self.actor_target = backend.pair("actor", networks["actor"])
        self.qs, self.targets = zip(
            backend.pair("q1", networks["q1"]), backend.pair("q2", networks["q2"]), strict=True
        )
        self.critic_optimizer = self._make_optimizer("critic", list(self.qs))
        self.actor_optimizer = self._make_optimizer("actor", [self.actor])
        self.begin_states(action, self.critics)

    def critic_loss(self, b: Batch) -> tuple[Array, dict[str, Array]]:
        """Return (Q1 - y)^2 + (Q2 - y)^2, [B], without a factor of 1/2 (algorithm 1), for
        y = r + discount * min Q_target(s', a') and the target policy's a' with clipped noise."""
        xp, s, (now, next_) = ops.of(b.reward), self.settings, self.views(b)
        noise = xp.clip(s.smoothing * b.noise, -s.smoothing_clip, s.smoothing_clip)
        action = self.choice(self.actor_target, next_, b.next_obs)
        action = xp.clip(action + noise, -1.0, 1.0)  # eq. 14
        q1, q2 = (next_(q, b.next_obs, action)[..., 0] for q in self.targets)
        reward, discount, next_q = self.over_n_steps(b, b.reward, xp.minimum(q1, q2))
        y = xp.stop_gradient(reward + discount * next_q)  # eq. 10
        q1, q2 = (now(q, b.obs, b.action)[..., 0] for q in self.qs)
        aux = {"q": q1, **priorities.mean_error(s, q1 - y, q2 - y)}
        return (q1 - y) ** 2 + (q2 - y) ** 2, aux

    def actor_loss(self, b: Batch) -> tuple[Array, dict[str, Array]]:
        """Return -Q1(s, pi(s)), [B]: the deterministic policy gradient (eq. 1)."""
        now, _ = self.views(b)
        return -now(self.qs[0], b.obs, self.choice(self.actor, now, b.obs))[..., 0], {}

    def update(self, b: Batch) -> Update:
        s, xp, b = b.settings, ops.of(b.reward), self.steps(b)
        critic_loss, critic = self.backend.minimize(
            self.critic_optimizer, self.critic_loss, b, s["learning_rate"]
        )

        def policy() -> dict[str, Array]:
            actor_loss, _ = self.backend.minimize(
                self.actor_optimizer, self.actor_loss, b, s["learning_rate"]
            )
            for network, target in zip(
                (self.actor, *self.qs), (self.actor_target, *self.targets), strict=True
            ):
                self.backend.soft_update(network, target, s["tau"])
            return {"actor_loss": actor_loss}

        actor = self.backend.cond(s["policy"], policy, ("actor_loss",))
        metrics = {"critic_loss": critic_loss, "q": xp.mean(critic["q"]), **actor}
        return Update(metrics, self.priority(b, critic))

    def schedule(self, call: Call) -> dict[str, Array]:
        due = base.each_nth(call, self.settings.policy_delay)
        return {**self.scheduled(call, "learning_rate", "tau"), "policy": due}

    def loss_noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Tree:
        """Sample standard normal noise for the target actions."""
        return rng.standard_normal((*shape, self.size), dtype=np.float32)
