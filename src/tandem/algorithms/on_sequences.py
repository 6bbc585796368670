"""Base of algorithms that learn from sequences of steps, new and replayed: A3C, ACER, IMPALA and
n-step Q.

A *sequence* is `rollout` steps of one environment and the observation after them; episodes can end
inside it. An update uses `envs` sequences: rows [(rollout + 1) * envs], time first. The last `envs`
rows are the observations after the steps and have weight 0. Replayed sequences are corrected with
the current policy, so the loss computes the returns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from tandem import ops
from tandem.algorithms import (
    action_spaces,
    base,
    bodies,
    memories,
    name_of,
    priorities,
    recurrent_batches,
)
from tandem.algorithms.base import Backend, Call, Forward, Network
from tandem.algorithms.bootstraps import after_cuts
from tandem.algorithms.normalized import NormalizedSettings
from tandem.errors import SettingError
from tandem.math.distributions import Density, Spherical
from tandem.math.masks import masked
from tandem.math.products import for_actions
from tandem.networks.defaults import Role, Source, streams
from tandem.networks.plan import Dense, Plan, Streams
from tandem.settings import Needs, Schedule, default, setting
from tandem.spaces import Leaf, Spec, seen
from tandem.types import Array, Batch, Trajectory, Tree, Update, tree_map

ACER = "Wang et al. 2017, section 3 and appendix A"
IMPALA = "Espeholt et al. 2018, figure 3"
REPLAYED = Needs(replay=("prioritized", "uniform"))
PRIORITIZED = Needs(replay="prioritized")


@dataclass(frozen=True)
class SequenceSettings(NormalizedSettings, base.Settings):
    """Settings of algorithms that learn from sequences."""

    envs: int = default(8, help="number of parallel environments, and of sequences per update")
    rollout: int = setting(20, "steps per sequence", ACER, minimum=1)
    shared: bool = setting(True, "share the feature extractor between policy and values")
    recurrent: int = memories.units("between feature extractor and head", IMPALA)
    memory: Literal["gru", "lstm"] = memories.kind()
    reduction: Literal["mean", "sum"] = setting(
        "mean", "how the losses of a batch's steps are reduced to one value"
    )
    max_grad_norm: float = setting(
        0.5, "clip gradients to this global norm; 0: no clipping", minimum=0, fix="try 0.5."
    )
    adam_epsilon: float = setting(
        1e-5,
        "epsilon of Adam, added to the square root of the second moment",
        above=0,
        fix="try 1e-8.",
        needs=Needs(optimizer="adam"),
    )
    rms_decay: float = setting(
        0.99,
        "decay rate of RMSProp's mean square",
        minimum=0,
        maximum=1,
        needs=Needs(optimizer="rmsprop"),
    )
    rms_epsilon: float = setting(
        1e-5,
        "epsilon of RMSProp, added to the mean square inside the square root",
        above=0,
        fix="try 1e-5.",
        needs=Needs(optimizer="rmsprop"),
    )
    optimizer: Literal["adam", "rmsprop", "sgd"] = setting("adam", "optimizer")
    online: bool = setting(True, "make one update on each batch of newly collected sequences")
    replay: Literal["none", "uniform", "prioritized"] = setting(
        "none", "also learn from replayed sequences, sampled uniformly or by priority"
    )
    replay_ratio: float = setting(
        4.0,
        "mean number of replay updates per batch of new sequences (Poisson distributed)",
        ACER,
        minimum=0,
        needs=REPLAYED,
    )
    replay_size: int = setting(
        1000,
        "replay buffer size in sequences",
        minimum=1,
        needs=REPLAYED,
    )
    replay_starts: int = setting(
        100,
        "sequences in the buffer before replay starts; by default at most a tenth of the run",
        minimum=0,
        needs=REPLAYED,
    )
    priority: Literal["error", "differential"] = setting(
        "differential",
        "sequence priority: mean absolute TD error, or L1 norm of the loss gradient at the outputs",
        needs=PRIORITIZED,
    )
    priority_alpha: float = priorities.alpha(PRIORITIZED)
    priority_beta: Schedule = priorities.beta(PRIORITIZED)
    evict: Literal["oldest", "sample"] = setting(
        "oldest",
        "sequence that a full buffer drops: the oldest, or one sampled by low priority",
        needs=REPLAYED,
    )

    @property
    def block(self) -> int:
        return self.rollout

    @property
    def update_rate(self) -> float:
        replayed = 0.0 if self.replay == "none" else self.replay_ratio
        return (self.online + replayed) / (self.rollout * self.envs)


class Sequences(NamedTuple):
    """A batch of sequences, time first: T steps of B environments."""

    action: Array  # [T, B, ...]
    reward: Array  # [T, B]
    discount: Array  # [T, B]
    last: Array  # bool [T, B]
    # [T, B]  1 where the step's own value replaces its reward, and its weight is 0: at replayed
    # steps that truncated the episode, since the value after them is no longer known
    cut: Array
    extra: dict[str, Array]  # stored outputs of the acting policy, [T, B, ...]

    def rewards(self, own: Array) -> Array:
        """Return the rewards, replaced by the steps' own values `own` [T, B] at `cut`."""
        return self.reward + self.cut * (own - self.reward)


class OnSequences(base.Algorithm):
    """An algorithm with one network, `net`, whose outputs are concatenated, and one optimizer."""

    needs = "sequences"
    acting = ("net",)
    preparing: tuple[str, ...] = ("net",)
    reported: ClassVar[tuple[str, ...]] = ()  # names in the auxiliary outputs that are metrics

    def __init__(
        self,
        backend: Backend,
        networks: dict[str, Source],
        observation: Spec,
        action: Leaf,
        settings: SequenceSettings,
    ) -> None:
        self.backend, self.settings, self.leaf = backend, settings, action
        backend.time_first = True
        self.make(networks["net"])
        self.optimizer = self._make_optimizer("net", [self.net])

    def make(self, source: Source) -> None:
        """Create the network, and its target or average network, if any."""
        self.net = self.backend.network("net", source)

    @classmethod
    def head(cls, action: Leaf, settings: Any) -> Plan:
        """Return the head: two streams for policy and values, or one for Q-values."""
        raise NotImplementedError

    @classmethod
    def roles(cls, observation: Spec, action: Leaf, settings: SequenceSettings) -> dict[str, Role]:
        body = bodies.body(seen(observation, action), settings.hidden, settings)
        head = cls.head(action, settings)
        forked = bool(streams(head))
        split = forked and not settings.shared
        if split and settings.recurrent:
            raise SettingError(
                f"shared=False is not supported with recurrent={settings.recurrent}.",
                "one of them, since policy and values share one recurrent layer and feature "
                "extractor",
                "give shared=True or recurrent=0.",
            )
        part = "both" if forked else "actor"
        return {"net": bodies.role(observation, body, head, settings, part, split=split)}

    @staticmethod
    def behavior(action: Leaf) -> dict[str, tuple[int, ...]]:
        """Return the stored outputs of the acting policy: name -> shape per step, float32."""
        return {}

    def behavior_outputs(self, out: Array, action: Array) -> dict[str, Array]:
        """Return the entries of `behavior` from the network's output [rows, ...] and the actions
        taken."""
        return {}

    def allowed(self, out: Array, obs: Tree) -> Array:
        """Mask the invalid actions in a network's output, whose first entries are those of
        actions."""
        if not self.leaf.masked:
            return out
        n = self.leaf.width
        return ops.of(out).concat([masked(out[..., :n], obs, self.leaf), out[..., n:]], -1)

    def output(self, network: Network, b: Batch) -> Array:
        """Return a network's output for a batch's rows. Recurrent networks start each sequence from
        the acting network's recurrent state."""
        if self.settings.recurrent:
            return self.allowed(recurrent_batches.output(network, b.obs, b, "net"), b.obs)
        return self.allowed(network(b.obs), b.obs)

    def value(self, out: Array) -> Array:
        """Return the values of states [...] from the network's output [..., outputs]."""
        raise NotImplementedError

    def bootstrap_value(self, said: dict[str, Array], obs: Tree, kept: dict[str, Array]) -> Array:
        """Return the values of observations [rows, ...] at which an episode was truncated. said:
        the outputs of each network in `preparing` for them; kept: the extras that acting stored at
        these steps, or at the steps before them."""
        return self.value(said["net"])

    def prepare(self, trajectory: Trajectory, networks: dict[str, Forward]) -> Batch:
        """Return arrays [T + 1, N, ...]: the trajectory, and the observations after it as a row of
        weight 0. `cut` marks truncated episodes, and `after` is the discounted value of their true
        last observations. For recurrent networks `start` marks the starts of episodes, and
        `net_state` [1, N, size] is the acting network's recurrent state before the first step
        (Espeholt et al. 2018, section 3)."""
        t, shape = trajectory, trajectory.reward.shape

        def longer(x: Array) -> Array:
            return np.concatenate([x, np.zeros_like(x[:1])])

        cut, names = t.last & (t.discount > 0), self.behavior(self.leaf)
        extra = {"last": longer(t.last), "cut": longer(cut.astype(np.float32))}
        if self.settings.recurrent:
            extra |= {"start": longer(recurrent_batches.starts(t)), "net_state": t.state[None]}
        after = np.zeros(shape, np.float32)
        obs, action = tree_map(lambda x: x.reshape(-1, *x.shape[2:]), (t.obs, t.action))
        rows = {n: x.reshape(-1, *x.shape[2:]) for n, x in t.extra.items()}
        out: dict[str, Array] = {}
        if cut.any() or (names and "output" not in rows):
            both = {
                n: recurrent_batches.trajectory_outputs(networks[n], t, obs) for n in self.preparing
            }
            out = {n: self.allowed(x, obs) for n, (x, _, _) in both.items()}
        if names:  # the acting policy may be older than the networks
            acted = self.allowed(rows["output"], obs) if "output" in rows else out["net"]
            behavior_outputs = self.behavior_outputs(acted, action)
            extra |= {
                k: longer(behavior_outputs[k].reshape(*shape, *names[k]).astype(np.float32))
                for k in names
            }
        if cut.any():
            value = self.bootstrap_value(out, obs, rows).reshape(shape)

            def later(at: Array, seen: Tree) -> Array:
                kept = {n: x[at] for n, x in t.extra.items()}
                then = {n: self.allowed(of(at, seen), seen) for n, (_, of, _) in both.items()}
                return self.bootstrap_value(then, seen, kept)

            after = after_cuts(
                t, value, later(-1, t.bootstrap) if cut[-1].any() else value[-1], later
            )
        return Batch(
            tree_map(lambda x, end: np.concatenate([x, end[None]]), t.obs, t.bootstrap),
            longer(t.action),
            longer(t.reward),
            longer(t.discount),
            weight=longer(t.valid.astype(np.float32)),
            extra={**extra, "after": longer(after)},
        )

    def over_time(self, rows: Array) -> Array:
        """Reshape rows [(T + 1) * B, ...] to [T + 1, B, ...]."""
        return ops.of(rows).reshape(rows, (self.settings.rollout + 1, -1, *rows.shape[1:]))

    def sequences(self, b: Batch) -> Sequences:
        """Return the steps of a batch, without the row after them."""
        action, reward, discount = (
            self.over_time(x)[:-1] for x in (b.action, b.reward, b.discount)
        )
        last, cut = (self.over_time(b.extra[n])[:-1] for n in ("last", "cut"))
        extra = {n: self.over_time(b.extra[n])[:-1] for n in self.behavior(self.leaf)}
        return Sequences(action, reward, discount, last, cut, extra)

    def losses(self, out: Array, b: Batch) -> tuple[Array, dict[str, Array]]:
        """Return the loss of each step [T, B] from the network's output over time [T + 1, B, ...],
        and auxiliary outputs [T, B]: those in `reported`, and "error", the TD error."""
        raise NotImplementedError

    def loss(self, b: Batch) -> tuple[Array, dict[str, Array]]:
        each, aux = self.losses(self.over_time(self.output(self.net, b)), b)
        xp = ops.of(each)
        return xp.reshape(xp.concat([each, 0.0 * each[:1]], 0), (-1,)), aux

    def update(self, b: Batch) -> Update:
        xp, s, summed = ops.of(b.reward), b.settings, self.settings.reduction == "sum"
        valid = b.extra["valid"]  # the weight is this times the importance weight of the sequence
        steps = xp.clip(xp.sum(valid), 1.0, float("inf"))
        priority = self.gradient_priority(b) if self.settings.replay == "prioritized" else ()
        count = 0.0 * steps + 1.0 if summed else steps
        loss, aux = self.backend.minimize(
            self.optimizer, self.loss, b, s["learning_rate"], s["max_grad_norm"], count
        )
        self.follow(s)
        valid = self.over_time(valid)[:-1]
        if self.settings.replay == "prioritized" and self.settings.priority == "error":
            each = xp.clip(xp.sum(valid, 0), 1.0, float("inf"))
            priority = xp.sum(xp.abs(aux["error"]) * valid, 0) / each
        return Update(
            {"loss": loss, **{n: xp.sum(aux[n] * valid) / steps for n in self.reported}}, priority
        )

    def follow(self, settings: dict[str, Array]) -> None:
        """Update the target or average network after each update, with the update's settings."""

    def gradient_priority(self, b: Batch) -> Array:
        """Return the L1 norm of the gradient of each sequence's summed loss with respect to the
        network's outputs, [B]."""
        xp, valid = ops.of(b.reward), self.over_time(b.extra["valid"])[:-1]
        out = self.over_time(self.output(self.net, b))
        slope = xp.abs(self.backend.derivative(lambda o: xp.sum(self.losses(o, b)[0] * valid), out))
        return xp.sum(xp.sum(slope, -1), 0)

    def schedule(self, call: Call) -> dict[str, Array]:
        return self.scheduled(call, "learning_rate", "max_grad_norm")


class ActorCritic(OnSequences):
    """An algorithm whose network outputs a policy and state values."""

    def __init__(
        self,
        backend: Backend,
        networks: dict[str, Source],
        observation: Spec,
        action: Leaf,
        settings: SequenceSettings,
    ) -> None:
        super().__init__(backend, networks, observation, action, settings)
        self.policy = self.distribution(settings, action)

    @classmethod
    def distribution(cls, settings: SequenceSettings, action: Leaf) -> Density:
        """Return a discrete distribution, or a normal one with the same variance for all elements
        of a vector (Mnih et al. 2016, supplement, section 9)."""
        return Spherical(action.width) if action.kind == "box" else for_actions(action)

    def value(self, out: Array) -> Array:
        return out[..., -1]

    @classmethod
    def kept(
        cls, settings: SequenceSettings, action: Leaf, state: Tree, out: Array = ()
    ) -> dict[str, Array]:
        """Store the output if `behavior` is not empty."""
        return {"output": out} if cls.behavior(action) else {}

    @classmethod
    def check(cls, observation: Spec, action: Leaf, settings: SequenceSettings) -> None:
        action_spaces.simple(name_of(cls), action)

    @classmethod
    def head(cls, action: Leaf, settings: SequenceSettings) -> Plan:
        policy = Dense(0, cls.distribution(settings, action).width, "linear", "orthogonal", 0.01)
        return (Streams({"policy": (policy,), "value": (Dense(0, 1, "linear", "orthogonal"),)}),)

    def schedule(self, call: Call) -> dict[str, Array]:
        return self.scheduled(call, "learning_rate", "max_grad_norm", "entropy")
