"""Proximal policy optimisation (Schulman et al. 2017, arXiv:1707.06347) with the clipped surrogate, for discrete,
multi-discrete and continuous actions. Details and defaults as in "The 37 implementation details of PPO" (Huang et al. 2022)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from tandem import ops
from tandem.algorithms import base
from tandem.algorithms.base import Forward, Schedule, setting
from tandem.errors import SpaceError
from tandem.math.distributions import for_actions
from tandem.math.policies import clipped_surrogate, kl_estimate, standardize
from tandem.math.returns import generalized_advantage
from tandem.math.values import clipped_value_loss
from tandem.networks.defaults import Role, mlp
from tandem.networks.plan import Dense, Scale
from tandem.spaces import Leaf, Spec
from tandem.types import Array, Batch, Trajectory, Tree, Update, tree_map

PAPER = "Schulman et al. 2017, table 3 (MuJoCo)"
DETAILS = "Huang et al. 2022"


@dataclass(frozen=True)
class PPOSettings(base.Settings):
    """What PPO can be told."""

    envs: int = setting(8, "how many environments are stepped side by side", "Schulman et al. 2017, table 5 (Atari)")
    rollout: int = setting(256, "steps of each environment between updates", "2048 in all, as in " + PAPER)
    epochs: int = setting(10, "passes over a rollout", PAPER)
    batch_size: int = setting(64, "rows per update", PAPER)
    gae_lambda: float = setting(0.95, "trace of generalised advantage estimation", PAPER)
    clip: Schedule = setting(Schedule(0.2), "how far the probability ratio may leave 1 with profit; a schedule", PAPER)
    value_clip: float = setting(
        0.0, "how far values may move in one rollout with profit; 0: freely", DETAILS + ", detail 9: no gain"
    )
    value_weight: float = setting(0.5, "weight of the value loss", DETAILS + ", detail 9")
    entropy: Schedule = setting(Schedule(0.0), "weight of the entropy bonus; a schedule", PAPER)
    max_kl: float = setting(0.0, "stop a rollout's updates beyond this divergence from the old policy; 0: never", DETAILS)
    max_grad_norm: float = setting(0.5, "gradients are clipped to this global norm", DETAILS + ", detail 11")
    normalize_advantage: bool = setting(True, "standardise advantages within each batch", DETAILS + ", detail 7")
    normalize_observations: bool = setting(False, "standardise observations by running statistics, clipped at 10", DETAILS)
    normalize_rewards: bool = setting(False, "divide rewards by the running deviation of returns, clipped at 10", DETAILS)
    orthogonal: bool = setting(True, "orthogonal first weights, gain sqrt(2); heads 0.01 and 1", DETAILS + ", detail 2")
    log_std: float = setting(0.0, "first log standard deviation of continuous actions", DETAILS + ", continuous detail 2")
    adam_epsilon: float = setting(1e-5, "Adam's epsilon, added to the root of the second moment", DETAILS + ", detail 3")
    optimizer: Literal["adam", "sgd"] = setting("adam", "the optimizer")


class PPO(base.Algorithm):
    Settings = PPOSettings
    needs = "rollouts"
    acting = ("actor",)
    preparing = ("actor", "critic")
    action_mode = "clip"

    def __init__(self, backend: Any, networks: dict[str, Any], observation: Spec, action: Leaf, settings: PPOSettings) -> None:
        self.backend, self.settings, self.policy = backend, settings, for_actions(action)
        self.actor = backend.network("actor", networks["actor"])
        self.critic = backend.network("critic", networks["critic"])
        options = base.optimizer_options(settings)
        self.optimizer = backend.optimizer("ppo", [self.actor, self.critic], settings.optimizer, **options)

    @classmethod
    def check(cls, observation: Spec, action: Leaf) -> None:
        if action.kind == "multibinary":
            raise SpaceError(
                "ppo cannot act in a MultiBinary action space.",
                "Discrete, MultiDiscrete or Box actions",
                "use MultiDiscrete([2, ...]).",
            )
        base.one_axis("ppo", action)

    @classmethod
    def roles(cls, observation: Spec, action: Leaf, settings: PPOSettings) -> dict[str, Role]:
        init, gain, small, one = ("orthogonal", 2**0.5, 0.01, 1.0) if settings.orthogonal else ("uniform", 1.0, 1.0, 1.0)
        body = mlp(
            observation,
            settings.hidden,
            settings.activation,
            initializer=init,
            gain=gain,
            normalize=settings.normalize_observations,
        )
        policy = for_actions(action)
        if action.kind == "box":
            actor: tuple[Any, ...] = (Dense(0, policy.size, "linear", init, small), Scale(policy.size, settings.log_std))
        else:
            actor = (Dense(0, policy.width, "linear", init, small),)
        return {
            "actor": Role(observation, body, actor),
            "critic": Role(observation, body, (Dense(0, 1, "linear", init, one),), "critic"),
        }

    def loss(self, b: Batch) -> tuple[Array, dict[str, Array]]:
        s, old = b.settings, b.extra
        out = self.actor(b.obs)
        log_ratio = self.policy.log_prob(out, b.action) - old["log_prob"]
        advantage = standardize(old["advantage"], b.weight) if self.settings.normalize_advantage else old["advantage"]
        surrogate = clipped_surrogate(ops.of(out).exp(log_ratio), advantage, s["clip"])  # eq. 7
        value = self.critic(b.obs)[..., 0]
        if self.settings.value_clip:
            error = clipped_value_loss(value, old["value"], old["return"], self.settings.value_clip)
        else:
            error = (value - old["return"]) ** 2
        entropy = self.policy.entropy(out)
        loss = self.settings.value_weight * error - surrogate - s["entropy"] * entropy  # eq. 9, negated
        return loss, {"kl": kl_estimate(log_ratio), "value_loss": error, "entropy": entropy}

    def update(self, b: Batch) -> Update:
        s, xp = b.settings, ops.of(b.weight)
        rows = xp.sum(b.weight)  # a row that only reset its environment weighs nothing
        stop = (lambda aux: xp.sum(aux["kl"] * b.weight) / rows > self.settings.max_kl) if self.settings.max_kl else None
        loss, aux = self.backend.minimize(self.optimizer, self.loss, b, s["learning_rate"], s["max_grad_norm"], rows, stop)
        return Update({"loss": loss, **{n: xp.sum(v * b.weight) / rows for n, v in aux.items()}})

    def schedule(self, progress: Array, span: tuple[int, int]) -> dict[str, Array]:
        s = self.settings
        scheduled = {n: getattr(s, n)(progress) for n in ("learning_rate", "clip", "entropy")}
        return {**scheduled, "max_grad_norm": np.full(len(progress), s.max_grad_norm, np.float32)}

    @staticmethod
    def act_noise(settings: Any, action: Leaf, rng: np.random.Generator, shape: tuple[int, ...], progress: Array) -> Tree:
        return for_actions(action).noise(rng, shape)

    @staticmethod
    def act(
        networks: dict[str, Forward], obs: Tree, state: Tree, noise: Tree, action: Leaf
    ) -> tuple[Array, dict[str, Array], Tree]:
        policy, out = for_actions(action), networks["actor"](obs)
        return (policy.mode(out) if isinstance(noise, tuple) else policy.sample(out, noise)), {}, state

    def prepare(self, trajectory: Trajectory, networks: dict[str, Forward]) -> Batch:
        """Advantages and returns (GAE); the value of what followed a cut step is folded into its reward."""
        t, shape = trajectory, trajectory.reward.shape
        obs, action = tree_map(lambda x: x.reshape(-1, *x.shape[2:]), (t.obs, t.action))
        value = networks["critic"](obs)[:, 0].reshape(shape)
        reward = t.reward + _after_cuts(t, value, networks["critic"])
        bootstrap = networks["critic"](t.bootstrap)[:, 0]
        advantage = generalized_advantage(reward, t.discount, t.last, value, bootstrap, self.settings.gae_lambda)
        log_prob = self.policy.log_prob(networks["actor"](obs), action)
        extra = {"advantage": advantage, "return": advantage + value, "value": value, "log_prob": log_prob}
        return Batch(
            obs, action, weight=t.valid.reshape(-1).astype(np.float32), extra={n: x.reshape(-1) for n, x in extra.items()}
        )


def _after_cuts(t: Trajectory, value: Array, critic: Forward) -> Array:
    """gamma * V(true last observation) at the steps where an episode was cut, else 0; [T, N]."""
    after = np.zeros_like(value)
    cut = t.last & (t.discount > 0)
    if cut.any():
        after[:-1] = np.where(cut[:-1], t.discount[:-1] * value[1:], 0)  # where obs[t + 1] is that observation
        after[-1] = np.where(cut[-1], t.discount[-1] * critic(t.bootstrap)[:, 0], 0)
        if len(t.cuts.t):
            at = (t.cuts.t, t.cuts.env)
            after[at] = np.where(cut[at], t.discount[at] * critic(t.cuts.obs)[:, 0], 0)
    return after
