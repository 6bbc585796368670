"""Parallelized Q-network (Gallici et al. 2024, "Simplifying deep temporal difference learning",
arXiv:2407.04811): Q-learning on lambda-returns of rollouts, in epochs of minibatches, with layer
norm instead of a target network and replay. `bootstrap` selects Sarsa(lambda) or expected
Sarsa(lambda) (Sutton & Barto 2018, section 12.8)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from tandem import ops
from tandem.algorithms import action_spaces, bodies, memories, recurrent_batches, sarsa
from tandem.algorithms.base import Backend, Call, Forward
from tandem.algorithms.bootstraps import after_cuts
from tandem.algorithms.on_policy import NormalizedRollouts
from tandem.math.masks import masked
from tandem.math.returns import lambda_return
from tandem.networks.defaults import Role, Source
from tandem.networks.plan import Dense
from tandem.settings import Schedule, default, setting
from tandem.spaces import Leaf, Spec, seen
from tandem.types import Array, Batch, Trajectory, Tree, Update, tree_map

CODE = "the authors' code, mttga/purejaxql, pqn_cartpole.yaml"


@dataclass(frozen=True)
class PQNSettings(NormalizedRollouts):
    """Settings of PQN."""

    steps: int = default(500_000, CODE)
    envs: int = default(32, CODE)
    learning_rate: Schedule = default(
        Schedule(1e-4, 0.0), CODE, help="learning rate; accepts a schedule"
    )
    hidden: tuple[int, ...] = default((256, 256), CODE)
    activation: str = default("relu", CODE)
    rollout: int = default(64, CODE)
    max_grad_norm: float = default(10.0, CODE)
    adam_epsilon: float = default(
        1e-8, CODE, help="epsilon of RAdam and Adam, added to the square root of the second moment"
    )
    optimizer: Literal["radam", "adam", "rmsprop", "sgd"] = setting(
        "radam", "optimizer", CODE + "; Liu et al. 2020, arXiv:1908.03265"
    )
    layer_norm: bool = default(
        True,
        "Gallici et al. 2024",
        "layer normalization before activations of dense layers, for stability",
    )
    epochs: int = setting(4, "epochs per rollout", CODE, minimum=1)
    batch_size: int = setting(128, "minibatch size", CODE + ": 16 batches of a rollout", minimum=1)
    q_lambda: float = setting(
        0.95,
        "lambda of Q(lambda) returns, from 0 (one step) to 1 (all following steps)",
        CODE,
        minimum=0,
        maximum=1,
    )
    epsilon: Schedule = setting(
        Schedule(1.0, 0.2, 0.2),
        "probability of a random action; accepts a schedule",
        CODE,
        minimum=0,
        maximum=1,
    )
    bootstrap: Literal["max", "sarsa", "expected"] = sarsa.bootstrap()
    recurrent: int = memories.units()
    memory: Literal["gru", "lstm"] = memories.kind()
    sequence: int = setting(
        16,
        "with recurrent: truncated backpropagation length, a divisor of rollout and batch_size; "
        "0: whole rollout",
        minimum=0,
        needs=memories.NEEDED,
    )


class PQN(sarsa.EpsilonGreedy):
    Settings = PQNSettings
    needs = "rollouts"
    acting = ("q",)
    preparing = ("q",)
    valued = True

    def __init__(
        self,
        backend: Backend,
        networks: dict[str, Source],
        observation: Spec,
        action: Leaf,
        settings: PQNSettings,
    ) -> None:
        self.backend, self.settings, self.action = backend, settings, action
        self.q = backend.network("q", networks["q"])
        if settings.recurrent:
            self.sequence = settings.sequence or settings.rollout
            backend.time_first = True
        self.optimizer = self._make_optimizer("q", [self.q])

    @classmethod
    def check(cls, observation: Spec, action: Leaf, settings: PQNSettings) -> None:
        action_spaces.discrete("pqn", action)

    @classmethod
    def roles(cls, observation: Spec, action: Leaf, settings: PQNSettings) -> dict[str, Role]:
        body = bodies.body(seen(observation, action), settings.hidden, settings)
        return {"q": bodies.role(observation, body, (Dense(0, action.sizes[0]),), settings)}

    def prepare(self, trajectory: Trajectory, networks: dict[str, Forward]) -> Batch:
        """Compute lambda-returns of the actions taken. Where an episode was truncated, its
        bootstrap value is added to the reward of its last step."""
        t, shape = trajectory, trajectory.reward.shape
        obs, action = tree_map(lambda x: x.reshape(-1, *x.shape[2:]), (t.obs, t.action))
        epsilon = t.extra.get("epsilon")
        out, then, after = recurrent_batches.trajectory_outputs(networks["q"], t, obs)

        def worth(q: Array, seen: Tree, at: Array) -> Array:
            """Return the policy's values of the observations at or after the steps `at`."""
            by = None if epsilon is None else epsilon[at].reshape(-1)
            return sarsa.policy_value(q, q, seen, self.action, by)

        def later(at: Array, seen: Tree) -> Array:
            return worth(masked(then(at, seen), seen, self.action), seen, at)

        q = masked(out, obs, self.action)
        value, bootstrap = worth(q, obs, ()).reshape(shape), later(-1, t.bootstrap)
        reward = t.reward + after_cuts(t, value, bootstrap, later)
        if self.settings.bootstrap == "sarsa":
            # use the actions taken; the bootstrap has none
            value = ops.of(q).take(q, action).reshape(shape)
        target = lambda_return(reward, t.discount, t.last, value, bootstrap, self.settings.q_lambda)
        weight = t.valid.reshape(-1).astype(np.float32)
        rows = Batch(obs, action, weight=weight, extra={"return": target.reshape(-1)})
        if not self.sequence:
            return rows
        rows.extra["start"] = recurrent_batches.starts(t).reshape(-1)
        states = {"q_state": recurrent_batches.before(t.state, after, self.sequence)}
        return recurrent_batches.sequences(rows, shape, self.sequence, states)

    def output(self, b: Batch) -> Array:
        """Return the network's output for these rows."""
        return recurrent_batches.output(self.q, b.obs, b, "q") if self.sequence else self.q(b.obs)

    def loss(self, b: Batch) -> tuple[Array, dict[str, Array]]:
        q = ops.of(b.weight).take(masked(self.output(b), b.obs, self.action), b.action)
        return 0.5 * (b.extra["return"] - q) ** 2, {"q": q}

    def update(self, b: Batch) -> Update:
        s, xp = b.settings, ops.of(b.weight)
        b = recurrent_batches.steps(b) if self.sequence else b
        rows = xp.sum(b.weight)  # rows that only reset their environment have weight 0
        loss, aux = self.backend.minimize(
            self.optimizer, self.loss, b, s["learning_rate"], s["max_grad_norm"], rows
        )
        return Update({"loss": loss, "q": xp.sum(aux["q"] * b.weight) / rows})

    def schedule(self, call: Call) -> dict[str, Array]:
        return self.scheduled(call, "learning_rate", "max_grad_norm")
