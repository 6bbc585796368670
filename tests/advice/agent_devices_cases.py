"""The advice about agents on several devices, followed in a process of its own with TensorFlow."""

import contextlib
import socket
from functools import partial
from typing import Any

import keras
import tensorflow as tf

from tandem.backends.keras_tensorflow_servers import ServerLayout, wait_for
from tandem.backends.keras_tensorflow_workers import WorkerLayout
from tandem.exploration import EpsGreedyQPolicy
from tests.advice.net import follow
from tests.agents.keras_q import Q

DEVICES = "backends/keras_tensorflow_layout.py"


def made(scope: Any = None, counts: Any = None) -> tuple[Q, Any]:
    with scope.scope() if scope else contextlib.nullcontext():
        agent = Q()
        agent.counts = counts and counts()
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


def main() -> None:
    """Each advice, and what becomes of it."""
    two = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], two)
    mirrored, other = (tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]) for _ in range(2))
    agent, _ = made(mirrored)
    agent.set(policy=EpsGreedyQPolicy(0.5), batch=4, pool_size=100)
    agent.distributed_training(keras.optimizers.SGD(), mirrored, 1, p=0)  # one that is new
    both, inside = {"strategy": mirrored, "scope": mirrored}, {"scope": mirrored}
    outside = {"strategy": mirrored, "scope": None}
    says = "with strategy.scope(): agent = ...; optimizer = ..."
    counts, count = ({"counts": partial(x, 1.0)} for x in (tf.Variable, keras.Variable))
    gone = {"error": tf.errors.UnavailableError(None, None, "/job:worker/task:1 is gone")}
    worker, server = {"kind": WorkerLayout, **gone}, {"kind": ServerLayout, **gone}
    nobody, start = {"error": None}, "start tf.distribute.Server"
    silent, listens = ({"listens": on} for on in (False, True))
    for row in (
        ("agents/distributed.py:for_devices", train, both | {"batch": 1}),
        ("no_strategy", train, {"strategy": "two"}, "call agent.train", {"strategy": None}),
        (f"{DEVICES}:_elsewhere", train, both | {"strategy": 2}, "give that strat", both),
        (f"{DEVICES}:_elsewhere 2", train, outside, says, both),
        (f"{DEVICES}:_elsewhere 2", train, outside | {"scope": other}, says, both),
        ("check_alone", train, inside, "call agent.distributed_training(optimizer", both),
        ("check_alone", train, inside, "outside strategy.scope()", {"scope": None}),
        ("TensorFlowLayout.check", train, {"strategy": 2, **counts}, "a keras.Variable", count),
        ("WorkerLayout.watched", lost, worker, "restart all workers", nobody),
        ("ServerLayout.watched", lost, server, "restart the cluster", nobody),
        ("keras_tensorflow_servers.py:wait_for", awaited, silent, start, listens),
    ):
        follow(*row)
