"""The advice about agents on several devices, followed in a process of its own with TensorFlow."""

from __future__ import annotations

import contextlib
import socket
from typing import Any

import gymnasium
import keras
import tensorflow as tf

from tandem import RL
from tandem.backends.keras_tensorflow_servers import ServerLayout, wait_for
from tandem.backends.keras_tensorflow_workers import WorkerLayout
from tandem.exploration import EpsGreedyQPolicy
from tests.advice.net import follow

CHECK = "backends/keras_tensorflow_devices.py:Layout.check"
WITHIN = "backends/keras_tensorflow_devices.py:_elsewhere"
OUTSIDE = "backends/keras_tensorflow_devices.py:_elsewhere 2"


class Q(RL):
    def __init__(self, counts: Any = None) -> None:
        self.q = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
        self.param, self.env = self.q.weights, gymnasium.make("CartPole-v1")
        self.counts = counts

    def action(self, s: Any) -> Any:
        return self.q(s)

    def __call__(self, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> Any:
        return keras.ops.mean((r[:, None] - self.q(s)) ** 2)

    def update_param(self) -> None:
        """There is no target."""


def made(scope: Any = None, counts: Any = None) -> tuple[Q, Any]:
    with scope.scope() if scope else contextlib.nullcontext():
        agent = Q(counts() if counts else None)
        return agent, keras.optimizers.SGD(0.01)


def train(strategy: Any = None, scope: Any = None, batch: int = 4, counts: Any = None) -> None:
    """An agent that was made in a scope, trained with a strategy; with neither on one device."""
    agent, optimizer = made(scope, counts)
    agent.set(policy=EpsGreedyQPolicy(0.5), batch=batch, pool_size=100)
    if strategy is None:
        agent.train(None, optimizer, 1, p=0)
    else:
        agent.distributed_training(optimizer, strategy, 1, p=0)


def lost(kind: Any, error: Any) -> None:
    """Work of devices amid which somebody is lost, or nobody."""
    layout = kind.__new__(kind)
    layout.workers, layout.rank, layout._task = 2, 0, "worker 0"
    with layout.watched():
        if error is not None:
            raise error


def awaited(listens: bool, patience: float = 0.2) -> None:
    with socket.socket() as server:
        server.bind(("localhost", 0))
        if listens:
            server.listen()
        wait_for({"ps": [f"localhost:{server.getsockname()[1]}"]}, patience)


def of_workers() -> None:
    """The advice about several processes."""
    gone = tf.errors.UnavailableError(None, None, "/job:worker/task:1 is gone")
    key = "backends/keras_tensorflow_workers.py:WorkerLayout.watched"
    given = {"kind": WorkerLayout, "error": gone}
    follow(key, lost, given, "restart all workers", {"error": None})
    key = "backends/keras_tensorflow_servers.py:ServerLayout.watched"
    given = {"kind": ServerLayout, "error": gone}
    follow(key, lost, given, "restart the cluster", {"error": None})
    key = "backends/keras_tensorflow_servers.py:wait_for"
    follow(key, awaited, {"listens": False}, "start tf.distribute.Server", {"listens": True})


def main() -> None:
    """Each advice, and what becomes of it."""
    processor = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(
        processor, [tf.config.LogicalDeviceConfiguration()] * 2
    )
    mirrored, other = (tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]) for _ in range(2))
    both = {"strategy": mirrored, "scope": mirrored}
    follow("agents/distributed.py:for_devices", train, both | {"batch": 1})
    key = "backends/__init__.py:no_strategy"
    follow(key, train, {"strategy": "two"}, "call agent.train", {"strategy": None})
    follow(WITHIN, train, {"strategy": 2, "scope": mirrored}, "give that strat", both)
    fix = "with strategy.scope(): agent = ...; optimizer = ..."
    for scope in (None, other):
        given = {"strategy": mirrored, "scope": scope}
        follow(OUTSIDE, train, given, fix, both)
    agent, _ = made(mirrored)
    agent.set(policy=EpsGreedyQPolicy(0.5), batch=4, pool_size=100)
    agent.distributed_training(keras.optimizers.SGD(), mirrored, 1, p=0)  # one that is new
    key = "backends/keras_tensorflow_devices.py:check_alone"
    follow(key, train, {"scope": mirrored}, "call agent.distributed_training(optimizer", both)
    follow(key, train, {"scope": mirrored}, "outside strategy.scope()", {"scope": None})
    own = {"strategy": 2, "counts": lambda: tf.Variable(1.0)}
    follow(CHECK, train, own, "a keras.Variable", {"counts": lambda: keras.Variable(1.0)})
    of_workers()
