"""What `test_devices.py` runs on an engine of Keras, in a process of its own."""

import json
import pickle
import tempfile
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any

import gymnasium
import keras
import numpy as np

import tandem
from tandem import trainer
from tandem.backends import choose, running
from tandem.exploration import GreedyQPolicy
from tandem.reports.onnx_export import to_onnx
from tests.advice.net import advised, follow
from tests.agents.keras_q import Q
from tests.collect.own_networks import body as sine
from tests.collect.own_networks import with_lambda
from tests.test_trainer import SMALL, TINY_DQN

ENGINE = str(running())
if ENGINE == "tensorflow":  # as JAX_NUM_CPU_DEVICES=2
    import tensorflow as tf

    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )
session = partial(trainer.session, "ppo", "CartPole-v1", framework=ENGINE, **SMALL)
train = partial(trainer.train, "ppo", "CartPole-v1", framework=ENGINE, steps=32, **SMALL)
SAME = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8)])


def body(space: Any, **more: Any) -> Any:
    return keras.Sequential([keras.Input(space.shape), keras.layers.Dense(8, **more)])


class Whole(keras.Model):
    """Values; a class that Keras was not told of, whose call takes no `training`."""

    def __init__(self) -> None:
        super().__init__()
        self.values = keras.layers.Dense(2)

    def call(self, x: Any) -> Any:
        return self.values(x)


class Branching(keras.Model):
    """Features; by Python code that reads a value, unless it is as compilers want it."""

    def __init__(self, where: bool = False) -> None:
        super().__init__()
        self.features, self.where = keras.layers.Dense(8), where

    def call(self, x: Any) -> Any:
        out, positive = self.features(x), keras.ops.sum(x) > 0
        return keras.ops.where(positive, out, -out) if self.where or positive else -out


def frozen() -> Q:
    agent = Q()
    agent.q.trainable = False
    return agent


def rl(agent: Any, optimizer: Any) -> None:
    agent.set(policy=GreedyQPolicy(), pool_size=100, batch=4)
    agent.train(None, optimizer, 1, p=0)


class Descent(keras.optimizers.SGD):
    def __init__(self, step_size: float) -> None:
        super().__init__(step_size)
        self.step_size = step_size


class Configured(Descent):
    def get_config(self) -> dict[str, Any]:
        return {"step_size": self.step_size}


def branches(jit: bool) -> None:
    class Branches(Q):
        jit_action = jit

        def action(self, s: Any) -> Any:
            return self.q(s) if float(keras.ops.sum(s)) > 0 else -self.q(s)

    rl(Branches(), keras.optimizers.Adam())


def adam() -> dict[str, Any]:
    return {"optimizer": keras.optimizers.Adam()}


USED = adam()
USED["optimizer"].build([keras.Variable(np.zeros(3))])
BODY = {"network": body}
DECAY = BODY | {"weight_decay": 0.01}
TRPO = partial(trainer.session, "trpo", "CartPole-v1", framework=ENGINE, rollout=16, envs=1)
DQN = partial(trainer.session, "dqn", "CartPole-v1", framework=ENGINE, buffer_size=1000)
LEARNS = partial(trainer.train, "dqn", "CartPole-v1", framework=ENGINE, steps=28, **TINY_DQN)
BRANCHES, WHERE = ({"network": lambda space, w=w: Branching(w)} for w in (False, True))
L2 = {"network": partial(body, kernel_regularizer="l2")}
ABOVE_0 = {"network": partial(body, kernel_constraint="non_neg")}
WHOLE, MADE = ({"network": {"q": q}} for q in (Whole(), lambda space: Whole()))
NONE, SAY = {"optimizer": object()}, "keras.optimizers.Adam(learning_rate=3e-4)"
DESCENT, CONFIGURED = ({"optimizer": kind(0.1)} for kind in (Descent, Configured))
OWN = "keras_optimizers.py:KerasOptimizerWrapper"
CASES: list[tuple[Any, ...]] = [
    ("keras_bodies.py:_looked_at", session, {"network": lambda _: [1]}, "return a model", BODY),
    ("keras_bodies.py:_looked_at 2", session, BRANCHES, "by keras.ops.where", WHERE),
    ("keras_bodies.py:_looked_at 3", session, L2, "set weight_decay", DECAY),
    ("TRPO.__init__ 2", TRPO, ABOVE_0, "leave the constraint out", BODY),
    ("keep_apart", DQN, {"network": lambda space: SAME}, "inside the function", BODY),
    ("whole_of.make", LEARNS, WHOLE, "as in lambda space: Whole()", MADE),
    ("check_compile", session, {"compile": "no"}, "leave compile out", {"compile": "auto"}),
    ("CompiledAction.__call__", branches, {"jit": True}, "jit_action = False", {"jit": False}),
    ("keras_optimizers.py:KerasOptimizerCopy.__init__", session, NONE, SAY, adam()),
    ("keras_optimizers.py:_copied", session, DESCENT, "define get_config in Descent", CONFIGURED),
    (f"{OWN}.__init__", rl, {"agent": Q(), **NONE}, "as keras.optimizers.Adam()", adam()),
    (f"{OWN}.look", rl, {"agent": frozen(), **adam()}, "leave some weights train", {"agent": Q()}),
    (f"{OWN}.look 2", rl, {"agent": Q(), **USED}, " = keras.optimizers.Adam()", adam()),
]


def networks_that_do_not_travel(folder: Path) -> None:
    """A lock goes into no pickle; an own layer into ONNX by Keras's own exporter alone."""
    made = train(network=with_lambda, out=folder / "run").agent
    pickle.dumps(made)
    made.networks["actor"].model.lock = Lock()
    advice = advised("backends/__init__.py:not_picklable", pickle.dumps, made)
    assert "leave that attribute out of the network" in advice.fix
    assert "tandem.load(folder, network=...)" in advice.fix
    assert tandem.load(folder / "run", network=with_lambda).name == made.name
    own = train(network=sine, out=folder / "own").agent
    pickle.dumps(own)
    if find_spec("jax2onnx") is None:
        advice = advised("FrozenModel.onnx", to_onnx, own, folder / "a.onnx")
        assert "tandem-rl[onnx-jax]" in advice.fix
    else:
        assert to_onnx(own, folder / "a.onnx").verified
    obs = np.eye(4, dtype=np.float32)
    assert tandem.load(folder / "own", network=sine).act(obs).tolist() == own.act(obs).tolist()


def a_schedule_in_a_file(path: Path) -> None:
    """The file does not hold the schedule, whose optimizer has one variable less."""
    schedule = keras.optimizers.schedules.ExponentialDecay(0.01, 10, 0.9)
    saved, agent, again = Q(), Q(), Q()
    rl(saved, keras.optimizers.Adam(schedule))
    saved.save(path)
    agent.restore(path)
    key = "agents/agent_checkpoint.py:_load_optimizer_settings 2"
    advice = advised(key, rl, agent, keras.optimizers.Adam(0.01))
    assert "a schedule as learning rate if the saved optimizer had one" in advice.fix
    again.restore(path)
    rl(again, keras.optimizers.Adam(schedule))
    assert again.total_episode == 2


class Odd(keras.layers.Layer):
    """Of a user's own, which Keras was not told of."""

    def call(self, x: Any) -> Any:
        return keras.ops.abs(x)


def a_file_of_keras(path: Path) -> None:
    cart = partial(gymnasium.make, "CartPole-v1")

    def evaluated(**given: Any) -> None:
        given |= {"env_maker": cart, "load_model": str(path), "num_episodes": 1}
        assert len(tandem.make_evaluator("dqn", **given).run().returns) == 1

    x = keras.Input((4,))
    keras.Model(x, keras.layers.Dense(2)(Odd()(x))).save(path)
    says, then = "load_model_custom={'Name': Class}", {"load_model_custom": {"Odd": Odd}}
    follow("own_networks.py:read 2", evaluated, {}, says, then)
    three = tandem.make_trainer("a3c", feature_maker=lambda space: (x, x, x), env_maker=cart)
    advice = advised("own_networks.py:_unfit", three.run)
    assert advice.fix.startswith("return (Input, feature)")


def several_devices() -> str:
    """The error for more devices than the two that this process has."""
    dqn = partial(trainer.session, "dqn", "CartPole-v1", framework=ENGINE, device="cpu", **TINY_DQN)
    dqn(devices=2).loop.collector.close()
    layout = import_module(f"tandem.backends.keras_{ENGINE}_devices").LAYOUT
    # JAX's own kind of devices, which here are no GPUs
    (fix,) = advised("backends/__init__.py:too_few", layout, "cuda", 3).assigned()
    if ENGINE == "jax":
        assert layout("cuda", count=fix["devices"]).count == 2
    advice = advised("backends/__init__.py:too_few 2", dqn, devices=4)
    assert {"devices": 2} in [{"devices": each.get("devices")} for each in advice.assigned()]
    return advice.fix


def main(device: bool) -> None:
    """Follows all, or only what is said of the device."""
    follow("backends/__init__.py:no_gpu", session, {"device": "cuda"})
    if not device:
        for row in CASES:
            follow(*row)
        with tempfile.TemporaryDirectory() as place:
            networks_that_do_not_travel(Path(place))
            a_schedule_in_a_file(Path(place) / "agent")
            a_file_of_keras(Path(place) / "net.keras")
    other = "tensorflow" if ENGINE == "jax" else "jax"
    advice = advised("backends/__init__.py:choose 4", choose, other)
    (told,) = advice.assigned()
    assert choose(**told) == ENGINE
    print(json.dumps([advice.fix, several_devices()]))
