"""A Keras agent on the engine of KERAS_BACKEND: prints one JSON object of what was found."""

import json
import tempfile
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import gymnasium
import keras
import numpy as np
from keras import layers, ops

from tandem import RL, LambdaCallback, assign_param, restore_param
from tandem.backends import variables
from tandem.exploration import EpsGreedyQPolicy, SoftmaxPolicy
from tests.agents.keras_q import Q, apart, refusal

found: dict[str, Any] = {}


def mlp(out: int, activation: str | None = None) -> Any:
    hidden = layers.Dense(8, "tanh")
    return keras.Sequential([keras.Input((4,)), hidden, layers.Dense(out, activation)])


def untrained(kind: Any = Q, **choices: Any) -> Any:
    agent, small = kind(), {"pool_size": 200, "batch": 8, "update_steps": 5}
    agent.set(**{"policy": EpsGreedyQPolicy(0.5), **small, **choices})
    return agent


def train(agent: Any, episodes: int = 4, optimizer: Any = None, **more: Any) -> Any:
    optimizer = optimizer or keras.optimizers.Adam(0.01)
    agent.train(keras.metrics.Mean(), optimizer, episodes, p=0, **more)
    return agent


def warned(agent: Any, words: str) -> bool:
    """Whether an episode of training warns of it."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        agent.train(None, None, 1, p=0)
    return any(words in str(w.message) for w in told)


one = train(untrained(), 2)
found["jit"] = apart(one, train(untrained(), 2, jit_compile=False)) < 1e-4
one.train(None, None, 2, p=0)
found["moved"] = apart(one, Q()) > 0.01
found["losses"] = len(one.loss_list) == 4 and one.loss_list[-1] > 0

# a call of several updates is cut where callbacks hear of each: the same to rounding
heard: list[Any] = []
listened = untrained(num_updates=7)
listened.callbacks = [LambdaCallback(on_batch_begin=lambda b, logs: heard.append(b))]
same = apart(train(listened), train(untrained(num_updates=7))) < 1e-5
found["listened"] = same and heard == list(range(listened._assembly.learner.updates))

# every variable that can be reached takes part: the target is in no list of parameters
one.target.trainable_variables[0].assign(one.target.trainable_variables[0] + 1.0)
before = one.loss
one.train(None, None, 1, p=0)
found["target"] = bool(np.isfinite(one.loss)) and before != one.loss

# what is saved goes on to the bit, with an optimizer's numbers in the file, whatever it was made
# with; one of another kind is refused
with tempfile.TemporaryDirectory() as folder:
    file = Path(folder) / "x.dat"

    def sgd(rate: float, momentum: float, decay: float) -> Any:
        return keras.optimizers.SGD(rate, momentum=momentum, weight_decay=decay)

    def again(optimizer: Any) -> Any:
        agent = untrained(PR=True)
        agent.restore(file)
        found["at once"] = apart(half.target.weights, agent.target.weights) == 0.0
        return train(agent, 3, optimizer)

    for name, kept, other in (
        ("resumes", keras.optimizers.Adam, keras.optimizers.Adam),
        ("numbers", lambda: sgd(0.01, 0.9, 0.1), lambda: sgd(0.5, 0.5, 0.3)),
    ):
        whole, half = (train(untrained(PR=True), n, kept()) for n in (6, 3))
        half.save(file)
        restored = again(other())
        found[name] = apart(whole, restored) == 0.0 and whole.loss_list == restored.loss_list
    for optimizer, word in (
        (keras.optimizers.Adam(), "optimizer SGD, but train was given Adam"),
        (sgd(0.1, 0.0, 0.1), "variables"),
    ):
        said = refusal(lambda optimizer=optimizer: again(optimizer))
        found[word] = word in said or said

    fresh = Q()
    both = zip(*map(variables.read, (Q().param, half.param)), strict=True)
    assign_param(fresh.param, restore_param(file), 0.5)
    found["half an array"] = apart([(a + b) / 2 for a, b in both], fresh) < 1e-6
    assign_param(fresh.param, restore_param(file))
    found["arrays"] = apart(fresh, half) == 0.0

# a number that a compiled loss has read may change
half.gamma = 0.0
found["gamma"] = warned(half, "gamma changed")

# weights that are frozen between trainings stay as they are, and learn once they are thawed
one.q.layers[0].trainable = False
frozen, loose = (variables.read(layer.weights) for layer in one.q.layers)
one.train(None, None, 2, p=0)
still, moved = map(apart, [layer.weights for layer in one.q.layers], (frozen, loose))
one.q.layers[0].trainable = True
one.train(None, None, 2, p=0)
thawed = apart(one.q.layers[0].weights, frozen)
found["frozen"] = still == 0.0 and moved > 0.0 and thawed > 0.0
known = keras.optimizers.Adam()
known.build(one.q.layers[1].weights)
one.optimizer = known
found["thawed"] = "frozen when it started" in refusal(lambda: one.train(None, None, 1, p=0))


class Signed(Q):
    """Its action reads a number; its networks are built when they are first called."""

    sign = 0.0

    def __init__(self) -> None:
        super().__init__()
        self.q, self.target = (
            keras.Sequential([layers.Dense(8, "tanh"), layers.Dense(2)]) for _ in range(2)
        )
        self.q(np.zeros((1, 4), np.float32))
        self.param = self.q.weights

    def action(self, s: Any) -> Any:
        return self.q(s) * self.sign + ops.convert_to_tensor([0.0, 1e-9])


signed = train(untrained(Signed))
found["late"] = signed.total_episode == 4
signed.sign = 1.0
found["sign"] = warned(signed, "sign changed, but the compiled action")


class ActorCritic(RL):
    """Two optimizers and two losses, PPO, a batch norm, a softmax."""

    def __init__(self) -> None:
        super().__init__()
        keras.utils.set_random_seed(0)
        self.actor, self.old, self.critic = mlp(2, "softmax"), mlp(2, "softmax"), mlp(1)
        parts = [keras.Input((4,)), layers.BatchNormalization(), layers.Dense(1)]
        self.norm = keras.Sequential(parts)
        self.param = [self.actor.weights, self.critic.weights + self.norm.weights]
        self.env = gymnasium.make("CartPole-v1")

    def action(self, s: Any) -> Any:
        return self.old(s)

    def __call__(self, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> Any:
        value = self.critic(s)[:, 0] + self.norm(s, training=True)[:, 0]
        TD = ops.stop_gradient(r + 0.9 * (1 - d) * self.critic(next_s)[:, 0]) - value
        taken = [ops.take_along_axis(x(s), a[:, None], 1)[:, 0] for x in (self.actor, self.old)]
        ratio = taken[0] / ops.stop_gradient(taken[1])
        self.prioritized_replay.update(TD, ratio)
        return [-ops.mean(ratio * ops.stop_gradient(TD)), ops.mean(TD**2)]

    def update_param(self) -> None:
        assign_param(self.old.weights, self.actor.weights)


agent = untrained(ActorCritic, policy=SoftmaxPolicy(), update_steps=40, PPO=True, PR=True)
start = variables.read(weights := variables.flat(agent.param))
train(agent, 8, [keras.optimizers.Adam(0.01), keras.optimizers.SGD(0.01)])
moved = [(x != y).any() for x, y in zip(start, variables.read(weights), strict=True)]
found["ppo"] = all(moved[i] for i, x in enumerate(start) if x.dtype.kind == "f")
found["ppo's old"] = apart(agent.old.weights, agent.actor.weights) == 0


class Raw(Q):
    """A number of its own is a variable, of TensorFlow's there."""

    def __init__(self) -> None:
        super().__init__()
        of_tensorflow = keras.backend.backend() == "tensorflow"
        self.gamma = (import_module("tensorflow") if of_tensorflow else keras).Variable(0.9)

    def update_param(self) -> None:
        super().update_param()
        self.gamma.assign(0.5)


with warnings.catch_warnings():
    warnings.simplefilter("error", UserWarning)
    raw = train(untrained(Raw))
found["variable"] = apart(raw, one) > 0 and "network/gamma/0" in raw._assembly.backend.state()


def square(self: Any, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> Any:
    value = self.q(s)[:, :1]
    return ops.mean((value - r) ** 2)


for loss, word in (
    (square, "return ops.mean((value - r)"),
    (lambda self, s, *_: self.q(s)[:, :1], "shape (11, 1)"),
    (lambda self, s, *_: ops.mean(ops.stop_gradient(self.q(s)) ** 2), "on no trained weight"),
):
    wrong = untrained(type("Wrong", (Q,), {"__call__": loss}))
    said = refusal(lambda wrong=wrong: train(wrong))
    found[word] = word in said or said

soft = Q()
pairs = zip(*map(variables.read, (soft.target.weights, soft.q.weights)), strict=True)
wanted = [old + 0.25 * (new - old) for old, new in pairs]
assign_param(soft.target.weights, soft.q.weights, 0.25)
found["soft"] = apart(soft.target.weights, wanted) < 1e-6
print(json.dumps(found))
