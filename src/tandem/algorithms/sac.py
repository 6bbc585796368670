"""Soft actor-critic (Haarnoja et al. 2018, arXiv:1812.05905): twin critics, squashed Gaussian
policy, learned temperature."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from math import inf
from typing import Any, ClassVar, Literal

import numpy as np

from tandem import ops
from tandem.algorithms import (
    action_spaces,
    base,
    bodies,
    critics,
    gsde,
    name_of,
    priorities,
    recurrent_replay,
)
from tandem.algorithms.base import Backend, Call, Network
from tandem.algorithms.recurrent_replay import View
from tandem.errors import SettingError
from tandem.math.action_values import CategoricalValues
from tandem.math.distributions import Distribution, TanhGaussian
from tandem.math.state_dependent import StateDependentTanh
from tandem.math.value_distributions import cross_entropy
from tandem.networks.defaults import Role, Source
from tandem.networks.plan import Dense
from tandem.networks.policy_layers import StateDependent
from tandem.settings import Needs, Search, default, setting
from tandem.spaces import Leaf, Spec
from tandem.types import Array, Batch, Tree, Update, tree_map

PAPER = "Haarnoja et al. 2018, table 1"
SB3 = "Stable-Baselines3 2.9 (SAC)"
LOG_STD, LIMIT = -3.0, 2.0  # SB3's gSDE: initial log_std, and clipping threshold of the means


@dataclass(frozen=True)
class SoftSettings(recurrent_replay.TransitionSettings):
    """Settings of all soft actor-critics."""

    steps: int = default(1_000_000, PAPER)
    hidden: tuple[int, ...] = default((256, 256), PAPER)
    critic_hidden: tuple[int, ...] = critics.hidden()
    activation: str = default("relu", PAPER)
    batch_size: int = default(256, PAPER, search=Search(16, 1024, "powers of two"))
    buffer_size: int = default(1_000_000, PAPER, search=Search(10_000, 1_000_000, "log"))
    learning_starts: int = default(100, SB3, search=Search(100, 20_000, "log"))
    train_every: int = default(1, PAPER)
    updates_per_call: int = default(1, PAPER)
    n_step: int = base.n_step()
    temperature: Literal["auto"] | float = setting(
        "auto", "entropy coefficient; 'auto': learned", "section 5 of the paper", minimum=0
    )
    target_entropy: Literal["auto"] | float = setting(
        "auto",
        "target entropy; 'auto': -(action size), or 0.98 log(actions) if discrete",
        PAPER + "; Christodoulou 2019",
        minimum=-inf,
        needs=Needs(temperature="auto"),
    )
    initial_temperature: float = setting(
        1.0,
        "initial value of a learned temperature",
        SB3,
        above=0,
        fix="try 1.0.",
        needs=Needs(temperature="auto"),
    )
    action_noise: gsde.Noise = gsde.choice()
    sde_sample_freq: int = gsde.sample_freq()
    log_std: float = setting(
        LOG_STD,
        "with gsde: initial log standard deviation of the random matrix",
        SB3,
        minimum=-inf,
        needs=Needs(action_noise="gsde"),
    )

    values = "scalar"  # output of the critics, unless `critics.CriticSettings` makes it a setting


@dataclass(frozen=True)
class TargetSettings:
    """Settings of target critics."""

    tau: float = setting(
        0.005,
        "soft update coefficient of the target critics",
        PAPER,
        minimum=0,
        maximum=1,
        search=Search(1e-3, 0.1, "log"),
    )


@dataclass(frozen=True)
class SACSettings(critics.CriticSettings, TargetSettings, SoftSettings):
    """Settings of SAC."""


class SoftActorCritic(recurrent_replay.RecurrentReplayAlgorithm):
    """What SAC, its variant for discrete actions, TQC and CrossQ share: networks, temperature, soft
    rewards and the order of updates: critics, policy, temperature, targets. Each class has its own
    `critic_loss` and `actor_loss`. All losses are averaged over the B rows, times importance
    weights."""

    needs = "transitions"
    acting = ("actor",)
    sees_between = True

    def __init__(
        self,
        backend: Backend,
        networks: dict[str, Source],
        observation: Spec,
        action: Leaf,
        settings: SoftSettings,
    ) -> None:
        self.backend = backend
        self.settings = settings
        self.action = action
        self.size = action.width
        # a critic's output covers all discrete actions, or the action that it receives
        self.values: Any = critics.values_of(settings, *action.sizes)
        self.squashed: Any = self.distribution(settings, action)
        self.actor = backend.network("actor", networks["actor"])
        names = tuple(name for name in networks if name != "actor")
        self.targets: tuple[Network, ...] = ()
        if isinstance(settings, TargetSettings):
            pairs = (backend.pair(name, networks[name]) for name in names)
            self.qs, self.targets = zip(*pairs, strict=True)
        else:
            self.qs = tuple(backend.network(name, networks[name]) for name in names)
        self.critic_optimizer = self._make_optimizer("critic", list(self.qs))
        self.actor_optimizer = self._make_optimizer("actor", [self.actor])
        self.learned = settings.temperature == "auto"
        start = settings.initial_temperature if self.learned else float(settings.temperature)
        self.log_alpha = backend.scalar("log_alpha", float(np.log(start)) if start else -np.inf)
        wanted = settings.target_entropy
        self.target_entropy = (
            self.default_target_entropy(action) if wanted == "auto" else float(wanted)
        )
        if self.learned:
            # weight decay would pull the temperature to 1
            options = base.optimizer_options(replace(settings, weight_decay=0.0))
            self.alpha_optimizer = backend.optimizer(
                "temperature", [self.log_alpha], settings.optimizer, **options
            )
        self.begin_states(action, names)

    @classmethod
    def check(cls, observation: Spec, action: Leaf, settings: Any) -> None:
        """Raise an error for unsupported combinations: gSDE with actions that are not a Box,
        n-step returns with recurrent networks, invalid settings of critics or replay."""
        critics.check_values(settings)
        recurrent_replay.check(settings)
        if settings.recurrent and settings.n_step > 1:
            raise SettingError(
                f"n_step={settings.n_step} is not supported with recurrent={settings.recurrent}.",
                "one of them: soft returns need the entropies of all steps in between, and so "
                "their recurrent states",
                "give n_step=1 or recurrent=0.",
            )
        if settings.action_noise == "gsde":
            gsde.check(name_of(cls), action)

    @staticmethod
    def default_target_entropy(action: Leaf) -> float:
        """Return the target entropy for target_entropy="auto"."""
        return -float(action.width)

    @abstractmethod
    def entropy(self, view: View, obs: Tree, *noise: Array) -> Array:
        """Return the policy's entropy in these states [B], or an estimate."""

    @abstractmethod
    def critic_loss(self, b: Batch) -> tuple[Array, dict[str, Array]]:
        """Return the loss of the critics [B], the value "q" of the actions taken, and with
        prioritized replay the "error"."""

    @abstractmethod
    def actor_loss(self, b: Batch) -> tuple[Array, dict[str, Array]]:
        """Return the loss of the policy and its "entropy", [B]."""

    def soft_reward(self, b: Batch) -> Array:
        """Return the rewards before the bootstrap value [B]. With n-step returns they include the
        current policy's entropies in the states between, times the current temperature."""
        if self.settings.n_step == 1:
            return b.reward
        xp, discount = ops.of(b.reward), b.extra["between_discount"]
        now, _ = self.views(b)
        obs, noise = tree_map(  # see `loss_noise`
            lambda x: xp.reshape(x, (-1, *x.shape[2:])), (b.extra["between"], b.noise[2:])
        )
        entropy = xp.reshape(self.entropy(now, obs, *noise), discount.shape)
        return b.reward + xp.exp(self.log_alpha()) * xp.sum(discount * entropy, -1)

    def soft_target(self, b: Batch, next_value: Array) -> Array:
        """Return the soft reward plus the discounted value of the next states, [B]."""
        return ops.of(b.reward).stop_gradient(self.soft_reward(b) + b.discount * next_value)

    def squared_loss(self, y: Array, q1: Array, q2: Array) -> tuple[Array, dict[str, Array]]:
        """Return half the sum of both critics' squared errors against the target y, [B]."""
        aux = {"q": q1, **priorities.mean_error(self.settings, q1 - y, q2 - y)}
        return 0.5 * ((q1 - y) ** 2 + (q2 - y) ** 2), aux

    def categorical_loss(
        self,
        b: Batch,
        own: list[Array],
        later: list[Array],
        log_prob: Array,
        policy: Array = None,
    ) -> tuple[Array, dict[str, Array]]:
        """Return the loss of categorical critics: the sum of cross-entropies with the soft target.
        own: logits [B, atoms] of the actions taken; later: the targets' logits
        [B, choices * atoms] in the next states; log_prob, policy: [B, choices], see
        `CategoricalValues.soft_target`."""
        cost = ops.of(b.reward).exp(self.log_alpha()) * log_prob
        target = self.values.soft_target(later, self.soft_reward(b), b.discount, cost, policy)
        losses = [cross_entropy(logits, target) for logits in own]
        errors = priorities.mean_error(self.settings, *losses)
        return sum(losses), {"q": self.values.mean(own[0]), **errors}

    def alpha_loss(self, b: Batch) -> tuple[Array, dict[str, Array]]:
        """Return log alpha * (H - target_entropy), [B]: eq. 18 with log alpha in place of alpha, as
        is usual. H is the "entropy" that `actor_loss` returned, without gradient."""
        return self.log_alpha() * (b.extra["entropy"] - self.target_entropy), {}

    def update(self, b: Batch) -> Update:
        b = self.steps(b)
        critic, priority = self.update_critics(b)
        policy = self.update_policy(b)
        for q, target in zip(self.qs, self.targets, strict=False):
            self.backend.soft_update(q, target, b.settings["tau"])
        temperature = ops.of(b.reward).exp(self.log_alpha())
        return Update({**critic, **policy, "temperature": temperature}, priority)

    def update_critics(self, b: Batch) -> tuple[dict[str, Array], Array]:
        """Update the critics once, and return the metrics and the priorities, [B] or ()."""
        loss, aux = self.backend.minimize(
            self.critic_optimizer, self.critic_loss, b, b.settings["learning_rate"]
        )
        metrics = {"critic_loss": loss, "q": ops.of(b.reward).mean(aux["q"])}
        return metrics, self.priority(b, aux)

    def update_policy(self, b: Batch) -> dict[str, Array]:
        """Update the policy once, and a learned temperature, and return the metrics."""
        rate = b.settings["learning_rate"]
        loss, aux = self.backend.minimize(self.actor_optimizer, self.actor_loss, b, rate)
        if self.learned:
            self.backend.minimize(
                self.alpha_optimizer, self.alpha_loss, b._replace(extra=aux), rate
            )
        return {"actor_loss": loss, "entropy": ops.of(b.reward).mean(aux["entropy"])}

    def schedule(self, call: Call) -> dict[str, Array]:
        return self.scheduled(call, "learning_rate", *(("tau",) if self.targets else ()))


class SAC(SoftActorCritic):
    """Soft actor-critic, with two critics and their targets."""

    Settings: ClassVar[type[SoftSettings]] = SACSettings

    @classmethod
    def distribution(cls, settings: SoftSettings, action: Leaf) -> Distribution:
        if settings.action_noise == "gsde":
            return StateDependentTanh(action.width, settings.sde_sample_freq)
        return TanhGaussian(action.width)

    @classmethod
    def check(cls, observation: Spec, action: Leaf, settings: Any) -> None:
        super().check(observation, action, settings)
        action_spaces.bounded_vector(name_of(cls), action)

    @classmethod
    def roles(cls, observation: Spec, action: Leaf, settings: Any) -> dict[str, Role]:
        body = bodies.body(observation, settings.hidden, settings)
        outputs = critics.values_of(settings).outputs
        q = bodies.action_value(observation, action, settings, outputs)
        head = Dense(0, 2 * action.width)
        if settings.action_noise == "gsde":
            head = StateDependent(
                0, action.width, log_std=settings.log_std, learn_features=True, limit=LIMIT
            )
        return {"actor": bodies.role(observation, body, (head,), settings), "q1": q, "q2": q}

    def sample(self, view: View, obs: Tree, noise: Array) -> tuple[Array, Array]:
        """Sample actions and return them with their log-probabilities, reparameterized by noise."""
        return self.squashed.sample_log_prob(view(self.actor, obs), noise)

    def entropy(self, view: View, obs: Tree, *noise: Array) -> Array:
        return -self.sample(view, obs, *noise)[1]

    def outputs(self, qs: tuple[Network, ...], view: View, obs: Tree, action: Array) -> list[Array]:
        """Return the critics' outputs, [B, ...] each."""
        return [view(q, obs, action) for q in qs]

    def value(self, qs: tuple[Network, ...], view: View, obs: Tree, action: Array) -> list[Array]:
        """Return the critics' values, [B] each."""
        return [self.values.part(out)[..., 0] for out in self.outputs(qs, view, obs, action)]

    def critic_loss(self, b: Batch) -> tuple[Array, dict[str, Array]]:
        """Return half the sum of both critics' squared errors [B] against the targets (eqs. 3, 5)
        y = r + discount * (min Q_target(s', a') - alpha * log pi(a' | s')), a' ~ pi(. | s'). r is
        the `soft_reward`, and y has no gradient. Categorical values: their cross-entropies."""
        xp, (now, next_) = ops.of(b.reward), self.views(b)
        action, log_prob = self.sample(next_, b.next_obs, b.noise[0])
        if isinstance(self.values, CategoricalValues):
            own = self.outputs(self.qs, now, b.obs, b.action)
            later = self.outputs(self.targets, next_, b.next_obs, action)
            return self.categorical_loss(b, own, later, log_prob[..., None])
        least = xp.minimum(*self.value(self.targets, next_, b.next_obs, action))
        y = self.soft_target(b, least - xp.exp(self.log_alpha()) * log_prob)
        return self.squared_loss(y, *self.value(self.qs, now, b.obs, b.action))

    def actor_loss(self, b: Batch) -> tuple[Array, dict[str, Array]]:
        """Return alpha * log pi(a | s) - min Q(s, a) for a ~ pi(. | s), [B] (eq. 7)."""
        xp, (now, _) = ops.of(b.reward), self.views(b)
        action, log_prob = self.sample(now, b.obs, b.noise[1])
        q = xp.minimum(*self.value(self.qs, now, b.obs, action))
        return xp.stop_gradient(xp.exp(self.log_alpha())) * log_prob - q, {"entropy": -log_prob}

    def loss_noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Tree:
        """Sample standard normal noise for the next and the current actions, and with n-step
        returns for the steps between."""
        draw = rng.standard_normal((2, *shape, self.size), dtype=np.float32)
        if (steps := self.settings.n_step - 1) == 0:
            return draw[0], draw[1]
        between = rng.standard_normal((*shape, steps, self.size), dtype=np.float32)
        return draw[0], draw[1], between
