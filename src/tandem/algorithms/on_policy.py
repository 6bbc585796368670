"""Base of actor-critics that discard each rollout after learning from it: acting, networks and
advantages (GAE)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf
from typing import Any, ClassVar, Literal

import numpy as np

from tandem import ops
from tandem.algorithms import (
    action_spaces,
    base,
    bodies,
    curiosity,
    gsde,
    memories,
    name_of,
    recurrent_batches,
)
from tandem.algorithms.base import Backend, Call, Forward, Network
from tandem.algorithms.bootstraps import after_cuts
from tandem.algorithms.normalized import DETAILS, NormalizedSettings
from tandem.errors import SettingError
from tandem.math.distributions import Beta, Density, Gaussian
from tandem.math.masks import masked
from tandem.math.policy_losses import standardize
from tandem.math.products import ProductDistribution, for_actions
from tandem.math.returns import generalized_advantage
from tandem.math.state_dependent import StateDependentGaussian
from tandem.networks.defaults import Role, Source
from tandem.networks.plan import Dense, Plan, Scale, Streams
from tandem.networks.policy_layers import StateDependent, WithLogStd
from tandem.settings import Needs, Search, setting
from tandem.spaces import Leaf, Spec, seen
from tandem.types import Array, Batch, Trajectory, Tree, tree_map

BETA = "Chou et al. 2017"
A3C = "Mnih et al. 2016, section 5.1 and supplement"


@dataclass(frozen=True)
class NormalizedRollouts(NormalizedSettings, base.RolloutSettings):
    """Settings of all algorithms that learn from whole rollouts: normalization and optimizer."""

    max_grad_norm: float = setting(
        0.5,
        "clip gradients to this global norm; 0: no clipping",
        DETAILS + ", detail 11",
        minimum=0,
        fix="try 0.5.",
        search=Search(0.3, 2.0),
    )
    standardize_rewards: bool = setting(
        False,
        "standardize rewards with running mean and standard deviation, clipped at 10",
        "Zheng et al. 2023",
    )
    adam_epsilon: float = setting(
        1e-5,
        "epsilon of Adam, added to the square root of the second moment",
        DETAILS + ", detail 3",
        above=0,
        fix="try 1e-8.",
        needs=Needs(optimizer=("radam", "adam")),
    )
    rms_decay: float = setting(
        0.99,
        "decay rate of RMSProp's mean square",
        A3C,
        minimum=0,
        maximum=1,
        needs=Needs(optimizer="rmsprop"),
    )
    rms_epsilon: float = setting(
        1e-10,
        "epsilon of RMSProp, added to the mean square inside the square root",
        "Stable-Baselines3 2.9 (A2C), which adds 1e-5 to the root",
        above=0,
        fix="try 1e-10.",
        needs=Needs(optimizer="rmsprop"),
    )

    def settled(self, given: Iterable[str]) -> NormalizedRollouts:
        """For SimBa and SimbaV2, normalize observations by statistics that change only between
        rollouts, so that networks train on the inputs that they acted on."""
        if self.body == "mlp":
            return self
        implied = {"normalize_observations": True, "layer_norm": False}
        return replace(self, **{n: x for n, x in implied.items() if n not in given})  # type: ignore[arg-type]


@dataclass(frozen=True)
class OnPolicySettings(NormalizedRollouts):
    """Settings of actor-critics that learn from rollouts."""

    gae_lambda: float = setting(
        0.95,
        "lambda of generalized advantage estimation (GAE)",
        minimum=0,
        maximum=1,
        search=Search(1e-4, 0.3, "near one"),
    )
    normalize_advantage: bool = setting(
        True, "normalize advantages within each batch", DETAILS + ", detail 7"
    )
    policy: Literal["gaussian", "beta"] = setting(
        "gaussian", "distribution of continuous actions; beta requires bounded actions", BETA
    )
    orthogonal: bool = setting(
        True, "orthogonal initialization, gain sqrt(2); heads 0.01 and 1", DETAILS + ", detail 2"
    )
    log_std: float = setting(
        0.0,
        "initial log standard deviation of continuous actions",
        DETAILS + ", continuous detail 2",
        minimum=-inf,
        needs=Needs(policy="gaussian"),
    )
    optimizer: Literal["adam", "rmsprop", "sgd"] = setting("adam", "optimizer")

    # Constants that most of these algorithms replace by settings
    shared = False  # one feature extractor for policy and values
    intrinsic = "no"  # rewards in addition to the environment's


@dataclass(frozen=True)
class JointSettings(OnPolicySettings):
    """Settings of actor-critics with one loss for actor and critic."""

    shared: bool = setting(
        False,
        "share the feature extractor between actor and critic, as is common for images",
        DETAILS + ", detail 13, Atari detail 8",
    )

    recurrent: int = memories.units("between feature extractor and head of both networks")
    memory: Literal["gru", "lstm"] = memories.kind()
    sequence: int = setting(
        0,
        "with recurrent: truncated backpropagation length, a divisor of rollout; 0: whole rollout",
        minimum=0,
        needs=memories.NEEDED,
    )


class OnPolicy(base.Algorithm):
    """Separate actor and critic networks for all action spaces that can be sampled; or, with
    `settings.shared`, one network, "actor", whose last output is the value. With
    `settings.recurrent` both are recurrent, and `update` receives sequences [S, L, ...], which
    `steps` converts to rows."""

    needs = "rollouts"
    acting: ClassVar[tuple[str, ...]] = ("actor",)
    preparing: tuple[str, ...] = ("actor", "critic")
    needs_old_policy: ClassVar[bool] = True  # the losses need outputs of the acting policy
    row_extras: ClassVar[tuple[str, ...]] = ()  # entries of a trajectory's extra for the losses

    def __init__(
        self,
        backend: Backend,
        networks: dict[str, Source],
        observation: Spec,
        action: Leaf,
        settings: Any,
    ) -> None:
        self.backend = backend
        self.settings = settings
        self.action = action
        self.policy = self.distribution(settings, action)
        made = {role: backend.network(role, source) for role, source in networks.items()}
        self.networks = list(made.values())
        self.actor = made["actor"]
        self.critic: Any = made.get("critic")
        if self.critic is None:
            self.preparing = ("actor",)
        if settings.recurrent:
            self.sequence = settings.sequence or settings.rollout
            backend.time_first = True
            # the critic's recurrent state before the next rollout
            self.memory = memories.begin(settings, settings.envs)
        self.curiosity: curiosity.Curiosity | None = None
        if settings.intrinsic != "no":
            spaces = observation, action
            self.curiosity = curiosity.Curiosity(backend, networks, *spaces, settings)
            self.networks.append(self.curiosity.network)
            self.apart, self.memory = curiosity.ROLES, self.curiosity.begin
            self.preparing = (*self.preparing, *curiosity.ROLES)

    @classmethod
    def distribution(cls, settings: Any, action: Leaf) -> Density:
        if settings.action_noise == "gsde":
            return StateDependentGaussian(action.width, settings.sde_sample_freq)
        return Beta(action.width) if settings.policy == "beta" else for_actions(action)

    @classmethod
    def check(cls, observation: Spec, action: Leaf, settings: Any) -> None:
        curiosity.check(name_of(cls), observation, settings)
        if settings.action_noise == "gsde":
            gsde.check(name_of(cls), action, settings.policy)
        if settings.policy == "beta":
            name = f"{name_of(cls)} with policy='beta'"
            action_spaces.bounded_vector(name, action, "give policy='gaussian'.")
        else:
            action_spaces.drawable(name_of(cls), action)

    @classmethod
    def roles(cls, observation: Spec, action: Leaf, settings: Any) -> dict[str, Role]:
        init, gain, small, one = (
            ("orthogonal", 2**0.5, 0.01, 1.0) if settings.orthogonal else ("uniform", 1.0, 1.0, 1.0)
        )
        inputs = seen(observation, action)
        body = bodies.body(inputs, settings.hidden, settings, initializer=init, gain=gain)
        policy = cls.distribution(settings, action)
        if isinstance(policy, StateDependentGaussian):
            noise = StateDependent(0, policy.size, "linear", init, small, log_std=settings.log_std)
            actor: Plan = (noise,)
        elif isinstance(policy, Gaussian):
            actor = (
                Dense(0, policy.size, "linear", init, small),
                Scale(policy.size, settings.log_std),
            )
        elif isinstance(policy, ProductDistribution):
            outputs = policy.width - policy.normal
            actor = (Dense(0, outputs, "linear", init, small),)
            if policy.normal:
                actor += (WithLogStd(outputs, policy.normal, settings.log_std),)
        else:
            actor = (Dense(0, policy.width, "linear", init, small),)
        curious = settings.intrinsic != "no"
        critic = (Dense(0, 2 if curious else 1, "linear", init, one),)
        if settings.shared:
            if settings.recurrent:
                raise SettingError(
                    f"shared=True is not supported with recurrent={settings.recurrent}.",
                    "one of them, since a recurrent layer needs its own feature extractor",
                    "give shared=False or recurrent=0.",
                )
            return {
                "actor": Role(
                    observation, body, (Streams({"policy": actor, "value": critic}),), "both"
                )
            }
        return {
            "actor": bodies.role(observation, body, actor, settings),
            "critic": bodies.role(observation, body, critic, settings, "critic"),
            **(curiosity.roles(observation, action, settings) if curious else {}),
        }

    def steps(self, b: Batch) -> Batch:
        """Return the batch as rows, one per step."""
        return recurrent_batches.steps(b) if self.sequence else b

    @staticmethod
    def network_input(role: str, obs: Tree) -> Tree:
        """Return the part of the observations that is the input of a role's network."""
        return obs

    def output(self, network: Network, b: Batch) -> Array:
        """Return the output of the actor or the critic for these rows."""
        obs = self.network_input(network.name, b.obs)
        if self.sequence:
            out = recurrent_batches.output(network, obs, b, network.name)
        else:
            out = network(obs)
        return masked(out, b.obs, self.action) if network is self.actor else out

    def outputs(self, b: Batch) -> tuple[Array, Array]:
        """Return the actor's output for these rows, and their values [rows]. With intrinsic rewards
        values are [rows, 2], and the second column is their value."""
        if self.critic is None:
            return self.split_output(self.actor(self.network_input("actor", b.obs)), b.obs)
        value = self.output(self.critic, b)
        return self.output(self.actor, b), value if self.curiosity else value[..., 0]

    def sum_over_rewards(self, error: Array) -> Array:
        """Return the errors [rows]. With intrinsic rewards they are [rows, 2], and both columns are
        added."""
        return ops.of(error).sum(error, -1) if self.curiosity else error

    def with_curiosity(
        self, loss: Array, aux: dict[str, Array], b: Batch
    ) -> tuple[Array, dict[str, Array]]:
        """Return the loss [rows] and its metrics, plus those of intrinsic rewards, if enabled."""
        return self.curiosity.join(loss, aux, b) if self.curiosity else (loss, aux)

    def schedule(self, call: Call) -> dict[str, Array]:
        return self.curiosity.schedule(call) if self.curiosity else {}

    def split_output(self, out: Array, obs: Tree) -> tuple[Array, Array]:
        """Split the output [rows, n] of a shared network into (policy output, values [rows])."""
        return masked(out[..., :-1], obs, self.action), out[..., -1]

    def standardize_advantages(self, b: Batch) -> Batch:
        """Return the batch for the losses: with `normalize_advantage`, advantages have mean 0 and
        standard deviation 1 over its valid rows."""
        if not self.settings.normalize_advantage:
            return b
        advantage = standardize(b.extra["advantage"], self.advantage_weight(b))
        return b._replace(extra={**b.extra, "advantage": advantage})

    @staticmethod
    def advantage_weight(b: Batch) -> Array:
        """Return weights [rows], 0 for rows whose advantages belong to no agent."""
        return b.weight

    @classmethod
    def act(
        cls,
        settings: OnPolicySettings,
        action: Leaf,
        networks: dict[str, Forward],
        obs: Tree,
        state: Tree,
        noise: Tree,
    ) -> tuple[Array, dict[str, Array], Tree]:
        policy, extra = cls.distribution(settings, action), dict[str, Array]()
        seen = cls.network_input("actor", obs)
        whole, state = recurrent_batches.advance(networks["actor"], seen, state)
        out = whole[..., :-1] if settings.shared else policy.part(whole)
        if whole.shape != out.shape:  # with values: saves a forward pass in `prepare`
            extra = {"output": whole}
        return policy.act(masked(out, obs, action), noise), extra, state

    def prepare(self, trajectory: Trajectory, networks: dict[str, Forward]) -> Batch:
        """Compute advantages and returns (GAE). Where an episode was truncated, discount * V(its
        last observation) is added to the reward of its last step."""
        t, shape = trajectory, trajectory.reward.shape
        obs, action = tree_map(lambda x: x.reshape(-1, *x.shape[2:]), (t.obs, t.action))
        start, after, policy = np.empty(0), np.empty(0), None
        if self.sequence:
            start = recurrent_batches.starts(t)
            out, after = recurrent_batches.follow(
                networks["critic"], self.network_input("critic", obs), self.memory, start
            )
            value = out[:, 0]
        elif self.critic is None:
            policy, value = self.split_output(t.extra["output"].reshape(t.reward.size, -1), obs)
        else:
            out = networks["critic"](self.network_input("critic", obs))
            value = out[:, 0]
        value = value.reshape(shape)

        def later(at: Array, seen: Tree) -> Array:
            """Return the values of the observations after the steps `at` of the rollout."""
            role = "critic" if self.critic else "actor"
            if self.sequence:
                return recurrent_batches.later(
                    networks[role], self.network_input(role, seen), after[at]
                )[:, 0]
            return networks[role](self.network_input(role, seen))[:, 0 if self.critic else -1]

        bootstrap = later(-1, t.bootstrap)
        reward = t.reward + after_cuts(t, value, bootstrap, later)
        advantage = generalized_advantage(
            reward, t.discount, t.last, value, bootstrap, self.settings.gae_lambda
        )
        extra = {
            n: x.reshape(-1)
            for n, x in (("advantage", advantage), ("return", advantage + value), ("value", value))
        }
        extra |= {n: t.extra[n].reshape(-1) for n in self.row_extras if n in t.extra}
        rows = Batch(obs, action, weight=t.valid.reshape(-1).astype(np.float32), extra=extra)
        if not self.sequence:
            if self.needs_old_policy:
                policy = (
                    masked(networks["actor"](self.network_input("actor", obs)), obs, self.action)
                    if policy is None
                    else policy
                )
                extra |= self.behavior_outputs(policy, action)
            if self.curiosity:
                ahead = networks["critic"](self.network_input("critic", t.bootstrap))[:, 1]
                values = out[:, 1].reshape(shape), ahead
                rows, self.memory = self.curiosity.prepare(t, rows, values, networks, self.memory)
            return rows
        policy, acted = recurrent_batches.follow(
            networks["actor"], self.network_input("actor", obs), t.state, start
        )
        policy = masked(policy, obs, self.action)
        extra |= {"start": start.reshape(-1)} | (
            self.behavior_outputs(policy, action) if self.needs_old_policy else {}
        )
        firsts = {"actor_state": (t.state, acted), "critic_state": (self.memory, after)}
        states = {
            n: recurrent_batches.before(first, then, self.sequence)
            for n, (first, then) in firsts.items()
        }
        self.memory = recurrent_batches.ending(t, after)
        return recurrent_batches.sequences(rows, shape, self.sequence, states)

    def behavior_outputs(self, out: Array, action: Array) -> dict[str, Array]:
        """Return outputs of the acting policy that the losses need, from its output [rows, ...]."""
        return {"log_prob": self.policy.log_prob(out, action)}
