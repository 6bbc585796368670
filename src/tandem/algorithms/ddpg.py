"""Deep deterministic policy gradient (Lillicrap et al. 2016, arXiv:1509.02971)."""

from __future__ import annotations

from dataclasses import dataclass

from tandem import ops
from tandem.algorithms import base, critics, gsde, priorities, recurrent_replay
from tandem.algorithms.base import Backend, Call, Source
from tandem.algorithms.deterministic import Deterministic, Noise, action_noise
from tandem.settings import Schedule, Search, default, setting
from tandem.spaces import Leaf, Spec
from tandem.types import Array, Batch, Update

PAPER = "Lillicrap et al. 2016, section 7"
NORMAL = "Fujimoto et al. 2018, section 6.1: correlated noise gains nothing"


@dataclass(frozen=True)
class DDPGSettings(recurrent_replay.TransitionSettings):
    """Settings of DDPG."""

    steps: int = default(1_000_000, PAPER)
    learning_rate: Schedule = default(
        Schedule(1e-3), PAPER, help="learning rate of the critic; accepts a schedule"
    )
    actor_learning_rate: Schedule = base.step_size(
        Schedule(1e-4), "learning rate of the actor; accepts a schedule", PAPER
    )
    hidden: tuple[int, ...] = default((400, 300), PAPER)
    critic_hidden: tuple[int, ...] = critics.hidden()
    activation: str = default("relu", PAPER)
    batch_size: int = default(64, PAPER, search=Search(16, 1024, "powers of two"))
    buffer_size: int = default(1_000_000, PAPER, search=Search(10_000, 1_000_000, "log"))
    learning_starts: int = default(100, search=Search(100, 20_000, "log"))
    n_step: int = base.n_step()
    exploration: Schedule = setting(
        Schedule(0.1),
        "standard deviation of the exploration noise (actions within ±1); accepts a schedule",
        NORMAL,
        minimum=0,
        search=Search(0.0, 1.0),
    )
    action_noise: Noise = action_noise()
    sde_sample_freq: int = gsde.sample_freq()
    tau: float = setting(
        0.001,
        "soft update coefficient of the target networks",
        PAPER,
        minimum=0,
        maximum=1,
        search=Search(1e-3, 0.1, "log"),
    )


class DDPG(Deterministic):
    Settings = DDPGSettings
    critics = ("q",)

    def __init__(
        self,
        backend: Backend,
        networks: dict[str, Source],
        observation: Spec,
        action: Leaf,
        settings: DDPGSettings,
    ) -> None:
        self.backend, self.settings, self.size = backend, settings, action.width
        self.actor, self.actor_target = backend.pair("actor", networks["actor"])
        self.q, self.q_target = backend.pair("q", networks["q"])
        self.critic_optimizer = self._make_optimizer("critic", [self.q])
        self.actor_optimizer = self._make_optimizer("actor", [self.actor])
        self.begin_states(action, self.critics)

    def critic_loss(self, b: Batch) -> tuple[Array, dict[str, Array]]:
        """Return (Q(s, a) - y)^2, [B], for y = r + discount * Q_target(s', pi_target(s')) (eqs. 4,
        5)."""
        now, next_ = self.views(b)
        action = self.choice(self.actor_target, next_, b.next_obs)
        next_q = next_(self.q_target, b.next_obs, action)[..., 0]
        reward, discount, next_q = self.over_n_steps(b, b.reward, next_q)
        y = ops.of(b.reward).stop_gradient(reward + discount * next_q)
        q = now(self.q, b.obs, b.action)[..., 0]
        return (q - y) ** 2, {"q": q, **priorities.mean_error(self.settings, q - y)}

    def actor_loss(self, b: Batch) -> tuple[Array, dict[str, Array]]:
        """Return -Q(s, pi(s)), [B] (eq. 6)."""
        now, _ = self.views(b)
        return -now(self.q, b.obs, self.choice(self.actor, now, b.obs))[..., 0], {}

    def update(self, b: Batch) -> Update:
        s, b = b.settings, self.steps(b)
        critic_loss, critic = self.backend.minimize(
            self.critic_optimizer, self.critic_loss, b, s["learning_rate"]
        )
        actor_loss, _ = self.backend.minimize(
            self.actor_optimizer, self.actor_loss, b, s["actor_learning_rate"]
        )
        self.backend.soft_update(self.q, self.q_target, s["tau"])
        self.backend.soft_update(self.actor, self.actor_target, s["tau"])
        return Update(
            {
                "critic_loss": critic_loss,
                "actor_loss": actor_loss,
                "q": ops.of(b.reward).mean(critic["q"]),
            },
            self.priority(b, critic),
        )

    def schedule(self, call: Call) -> dict[str, Array]:
        return self.scheduled(call, "learning_rate", "actor_learning_rate", "tau")
