"""A Keras agent on the engine of KERAS_BACKEND: prints one JSON object of what was found."""

from __future__ import annotations

import json
import tempfile
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import keras
import numpy as np
from keras import layers, ops

from tandem import RL, assign_param, restore_param
from tandem.backends import variables
from tandem.errors import TandemError
from tandem.exploration import EpsGreedyQPolicy, SoftmaxPolicy

found: dict[str, Any] = {}


def mlp(out: int, activation: str | None = None) -> Any:
    return keras.Sequential(
        [keras.Input((4,)), layers.Dense(8, "tanh"), layers.Dense(out, activation)]
    )


class Q(RL):
    def __init__(self) -> None:
        super().__init__()
        keras.utils.set_random_seed(0)
        self.q, self.target = mlp(2), mlp(2)
        self.param, self.env, self.gamma = self.q.weights, gymnasium.make("CartPole-v1"), 0.9

    def action(self, s: Any) -> Any:
        return self.q(s)

    def __call__(self, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> Any:
        value = ops.take_along_axis(self.q(s), a[:, None], 1)[:, 0]
        TD = value - ops.stop_gradient(r + self.gamma * (1 - d) * ops.max(self.target(next_s), 1))
        self.prioritized_replay.update(TD)
        return ops.mean(TD**2)

    def update_param(self) -> None:
        assign_param(self.target.weights, self.q.weights)


def trained(
    episodes: int = 4, jit: bool = True, kind: Any = Q, optimizer: Any = None, **choices: Any
) -> Any:
    agent = kind()
    agent.set(
        **{
            "policy": EpsGreedyQPolicy(0.5),
            "pool_size": 200,
            "batch": 8,
            "update_steps": 5,
            **choices,
        }
    )
    agent.train(
        keras.metrics.Mean(),
        optimizer or keras.optimizers.Adam(0.01),
        episodes,
        jit_compile=jit,
        p=0,
    )
    return agent


def apart(a: Any, b: Any) -> float:
    return apart_(a.param, b.param)


def apart_(a: Any, b: Any) -> float:
    arrays = [x if isinstance(x[0], np.ndarray) else variables.read(x) for x in (a, b)]
    return float(max(abs(x - y).max() for x, y in zip(*arrays, strict=True)))


one = trained()
found["moved"] = apart(one, Q()) > 0.01 and apart(one, trained()) == 0.0
found["losses"] = len(one.loss_list) == 4 and one.loss_list[-1] > 0
found["jit"] = apart(one, trained(jit=False)) < 1e-4


# a call of several updates is cut where callbacks hear of each: the same to rounding
class Hears:
    def on_batch_begin(self, b: int, logs: Any) -> None:
        told.append(b)


told: list[Any] = []
listened = Q()
listened.callbacks = [Hears()]
listened.set(policy=EpsGreedyQPolicy(0.5), pool_size=200, batch=8, update_steps=5, num_updates=7)
listened.train(keras.metrics.Mean(), keras.optimizers.Adam(0.01), 4, p=0)
found["listened"] = apart(listened, trained(num_updates=7)) < 1e-5 and told == list(
    range(listened._assembly.learner.updates)
)

# every variable that can be reached takes part: the target is in no list of parameters
one.target.trainable_variables[0].assign(one.target.trainable_variables[0] + 1.0)
before = one.loss
one.train(None, None, 1, p=0)
found["target"] = bool(np.isfinite(one.loss)) and before != one.loss

# what is saved goes on to the bit
with tempfile.TemporaryDirectory() as folder:
    for name, choices in (("resume", {}), ("resume_pr", {"PR": True})):
        whole = trained(6, **choices)
        half = trained(3, **choices)
        half.save(Path(folder) / "x.dat")
        again = Q()
        again.set(policy=EpsGreedyQPolicy(0.5), pool_size=200, batch=8, update_steps=5, **choices)
        again.restore(Path(folder) / "x.dat")
        # at once, to play with
        found[f"{name}_target"] = apart_(half.target.weights, again.target.weights) == 0.0
        again.train(keras.metrics.Mean(), keras.optimizers.Adam(0.01), 3, p=0)
        found[name] = apart(whole, again) == 0.0 and whole.loss_list == again.loss_list

    fresh = Q()
    assign_param(fresh.param, restore_param(Path(folder) / "x.dat"), 0.5)
    half_way = [
        (a + b) / 2 for a, b in zip(*map(variables.read, (Q().param, half.param)), strict=True)
    ]
    found["half an array"] = apart_(half_way, variables.read(fresh.param)) < 1e-6
    assign_param(fresh.param, restore_param(Path(folder) / "x.dat"))
    found["arrays"] = apart(fresh, half) == 0.0

    # an optimizer goes on with the numbers in the file, whatever it was made with; one of another
    # kind is refused
    def sgd(rate: float, momentum: float, decay: float) -> Any:
        return keras.optimizers.SGD(rate, momentum=momentum, weight_decay=decay)

    def again_with(optimizer: Any) -> Any:
        agent = Q()
        agent.set(policy=EpsGreedyQPolicy(0.5), pool_size=200, batch=8, update_steps=5)
        agent.restore(Path(folder) / "x.dat")
        agent.train(None, optimizer, 3, p=0)
        return agent

    whole, half = (trained(n, optimizer=sgd(0.01, 0.9, 0.1)) for n in (6, 3))
    half.save(Path(folder) / "x.dat")
    found["numbers"] = apart(whole, again_with(sgd(0.5, 0.5, 0.3))) == 0.0
    for optimizer, word in (
        (keras.optimizers.Adam(), "optimizer SGD; train was given Adam"),
        (sgd(0.1, 0.0, 0.1), "variables"),
    ):
        try:
            again_with(optimizer)
            found[word] = False
        except TandemError as error:
            found[word] = word in str(error) or str(error)

# a number that a compiled loss has read may change
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    other = trained()
    other.gamma = 0.0
    other.train(None, None, 1, p=0)
    found["gamma"] = any("gamma changed" in str(w.message) for w in told)


# weights that are frozen between trainings stay as they are, and learn once they are thawed
one.q.layers[0].trainable = False
frozen, loose = (variables.read(layer.weights) for layer in one.q.layers)
one.train(None, None, 2, p=0)
still = [
    apart_(layer.weights, was) for layer, was in zip(one.q.layers, (frozen, loose), strict=True)
]
one.q.layers[0].trainable = True
one.train(None, None, 2, p=0)
found["frozen"] = (
    still[0] == 0.0 and still[1] > 0.0 and apart_(one.q.layers[0].weights, frozen) > 0.0
)
known = keras.optimizers.Adam()
known.build(one.q.layers[1].weights)
one.optimizer = known
try:
    one.train(None, None, 1, p=0)
except TandemError as error:
    found["thawed"] = "frozen when it began" in str(error)


class Signed(Q):
    sign = 0.0

    def action(self, s: Any) -> Any:
        return self.q(s) * self.sign + ops.convert_to_tensor([0.0, 1e-9])


signed = trained(kind=Signed)
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    signed.sign = 1.0
    signed.train(None, None, 1, p=0)
    found["sign"] = any("sign changed, which the compiled action" in str(w.message) for w in told)


class Late(Q):
    """Its networks are built when they are first called."""

    def __init__(self) -> None:
        super().__init__()
        self.body = keras.Sequential([layers.Dense(8, "tanh"), layers.Dense(2)])
        self.body(np.zeros((1, 4), np.float32))
        self.target = keras.Sequential([layers.Dense(8, "tanh"), layers.Dense(2)])
        self.q, self.param = self.body, self.body.weights

    def update_param(self) -> None:
        assign_param(self.target.weights, self.body.weights)


found["late"] = trained(kind=Late).total_episode == 4


class ActorCritic(RL):
    """Two optimizers and two losses, PPO, a batch norm, a softmax."""

    def __init__(self) -> None:
        super().__init__()
        keras.utils.set_random_seed(0)
        self.actor, self.old, self.critic = mlp(2, "softmax"), mlp(2, "softmax"), mlp(1)
        self.norm = keras.Sequential(
            [keras.Input((4,)), layers.BatchNormalization(), layers.Dense(1)]
        )
        self.param = [self.actor.weights, self.critic.weights + self.norm.weights]
        self.env = gymnasium.make("CartPole-v1")

    def action(self, s: Any) -> Any:
        return self.old(s)

    def __call__(self, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> Any:
        value = self.critic(s)[:, 0] + self.norm(s, training=True)[:, 0]
        TD = ops.stop_gradient(r + 0.9 * (1 - d) * self.critic(next_s)[:, 0]) - value
        new, old = (
            ops.take_along_axis(net(s), a[:, None], 1)[:, 0] for net in (self.actor, self.old)
        )
        ratio = new / ops.stop_gradient(old)
        self.prioritized_replay.update(TD, ratio)
        return [-ops.mean(ratio * ops.stop_gradient(TD)), ops.mean(TD**2)]

    def update_param(self) -> None:
        assign_param(self.old.weights, self.actor.weights)


class Raw(Q):
    """A number of its own is a variable of TensorFlow's."""

    def __init__(self) -> None:
        super().__init__()
        if keras.backend.backend() == "tensorflow":
            import tensorflow as tf

            self.gamma = tf.Variable(0.9)
        else:
            self.gamma = keras.Variable(0.9)

    def update_param(self) -> None:
        super().update_param()
        self.gamma.assign(0.5)


with warnings.catch_warnings():
    warnings.simplefilter("error", UserWarning)
    raw = trained(kind=Raw)
found["variable"] = apart(raw, one) > 0 and "network/gamma/0" in raw._assembly.backend.state()

for pr in (False, True):
    agent = ActorCritic()
    start = variables.read(variables.flat(agent.param))
    agent.set(policy=SoftmaxPolicy(), pool_size=300, batch=8, update_steps=40, PPO=True, PR=pr)
    agent.train(None, [keras.optimizers.Adam(0.01), keras.optimizers.SGD(0.01)], 8, p=0)
    after = variables.read(variables.flat(agent.param))
    moved = [
        bool(abs(x - y).max() > 0) for x, y in zip(start, after, strict=True) if x.dtype.kind == "f"
    ]
    found[f"ppo_{pr}"] = all(moved) and apart_(agent.old.weights, agent.actor.weights) == 0


class Square(Q):
    def __call__(self, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> Any:
        value = self.q(s)[:, :1]
        return ops.mean((value - r) ** 2)


class Column(Q):
    def __call__(self, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> Any:
        return self.q(s)[:, :1]


class Stopped(Q):
    def __call__(self, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> Any:
        return ops.mean((ops.stop_gradient(self.q(s)[:, 0]) - r) ** 2)


for kind, word in (
    (Square, "return ops.mean((value - r)"),
    (Column, "shape (11, 1)"),
    (Stopped, "depends on no weight"),
):
    try:
        trained(kind=kind)
    except TandemError as error:
        found[kind.__name__] = word in str(error) or str(error)

soft = Q()
old = variables.read(soft.target.weights)
assign_param(soft.target.weights, soft.q.weights, 0.25)
found["soft"] = all(
    np.allclose(t, o + 0.25 * (s - o), atol=1e-6)
    for t, o, s in zip(
        variables.read(soft.target.weights), old, variables.read(soft.q.weights), strict=True
    )
)
print(json.dumps(found))
