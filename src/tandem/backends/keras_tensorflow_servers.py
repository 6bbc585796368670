"""Asynchronous updates by TensorFlow workers, with variables on parameter servers. This process,
the coordinator, sends them the minibatches."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import keras
import numpy as np
import tensorflow as tf

from tandem.backends import keras_tensorflow
from tandem.backends.backend import Guarded, Losses
from tandem.backends.keras_tensorflow_layout import TensorFlowLayout
from tandem.errors import WorkerError
from tandem.types import Array, Batch, Tree, Variable, tree_map

PAUSE = 0.1  # seconds between checks whether a server listens


class ServerLayout(TensorFlowLayout):
    """Workers that compute gradients of whole minibatches asynchronously and update the variables
    on the servers."""

    asynchronous = True

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        coordinator: tf.distribute.coordinator.ClusterCoordinator | None = None,
    ) -> None:
        self.strategy, self.of_user = strategy, True
        self.count = 1  # each minibatch belongs to one worker
        self.coordinator = coordinator or tf.distribute.coordinator.ClusterCoordinator(strategy)

    def gradients(
        self,
        losses: Losses,
        batch: Batch,
        groups: list[list[Variable]],
        variables: list[Variable],
    ) -> tuple[list[Array], dict[str, Array], list[list[Array]]]:
        """Return the result of `keras_tensorflow.gradients`, computed on the worker that received
        the update."""
        known = [v for v in variables if isinstance(v, keras.Variable)]
        moved: list[int] = []

        def replica() -> Tree:
            before = [tf.identity(v.value) for v in known]
            with keras.StatelessScope(list(zip(known, before, strict=True))) as scope:
                found = keras_tensorflow.gradients(losses, batch, groups, variables)
            now = [scope.get_current_value(v) for v in known]
            moved[:] = [
                i for i, (x, old) in enumerate(zip(now, before, strict=True)) if x is not old
            ]
            return found, [now[i] for i in moved]

        (values, aux, grads), new = self.strategy.run(replica)
        for i, x in zip(moved, new, strict=True):
            known[i].assign(x)
        return values, aux, grads

    def apply(
        self,
        optimizer: keras.optimizers.Optimizer,
        gradients: list[Array],
        trained: list[Variable],
        fine: Array = True,
    ) -> None:
        """Make a step of a Keras optimizer if the update is `fine`. Old values are never restored,
        since other workers may have changed the variables meanwhile."""

        def move() -> Array:
            self.strategy.run(lambda: optimizer.apply(gradients, trained))
            return tf.constant(True)

        tf.cond(fine, move, lambda: tf.constant(False))

    def many(self, guarded: Guarded) -> Callable[..., Tree]:
        """Return the function of `keras_tensorflow.many`, with each update scheduled on a worker.
        All updates are complete when it returns."""
        known: dict[object, Callable[..., Tree]] = {}

        def compiled(tree: Tree, arrays: list[Array]) -> Callable[..., Tree]:
            key = tuple((x.shape, x.dtype) for x in arrays)
            if key not in known:

                @tf.function(autograph=False)
                def update(*xs: Array) -> Tree:
                    data, settings = keras.tree.pack_sequence_as(tree, list(xs))
                    out, code, _ = guarded(data._replace(settings=settings), tf.constant(True))
                    return out, code

                known[key] = update
            return known[key]

        def run(data: Batch, settings: dict[str, Array], rows: Array, live: Array) -> Tree:
            made = []
            for k in np.flatnonzero(live):
                tree = (
                    tree_map(lambda x, k=k: np.asarray(x)[rows[k]], data),
                    tree_map(lambda x, k=k: np.asarray(x)[k], settings),
                )
                arrays = [np.asarray(x) for x in keras.tree.flatten(tree)]
                xs = tuple(tf.constant(x) for x in arrays)
                made.append(self.coordinator.schedule(compiled(tree, arrays), args=xs))
            self.coordinator.join()
            found = [tree_map(np.asarray, one.fetch()) for one in made]
            found += found[-1:] * (len(live) - len(found))
            return tree_map(lambda *xs: np.stack(xs), *found)

        return run

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Raise WorkerError if a server is lost in the block. (The updates of a lost worker are
        given to another.)"""
        try:
            yield
        except tf.errors.UnavailableError as error:
            raise WorkerError(
                f"a parameter server was lost: {str(error).splitlines()[0][:200]}",
                "servers that run until training ends, since they hold the weights",
                "restart the cluster, and restore the last saved file.",
            ) from error


def wait_for(jobs: dict[str, list[str]], patience: float) -> None:
    """Wait until each address ("host:port") of the workers and servers listens. Raises a
    WorkerError that names one which does not within `patience` seconds."""
    until = time.monotonic() + patience
    for kind in ("ps", "worker"):
        for i, address in enumerate(jobs.get(kind, ())):
            while not _listens(address):
                if time.monotonic() > until:
                    raise WorkerError(
                        f"{kind} {i} of the cluster, {address}, does not listen after "
                        f"{patience:g} s.",
                        "every worker and parameter server listening at its address",
                        "start tf.distribute.Server(...).join() there, or give more patience.",
                    )
                time.sleep(PAUSE)


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=1.0):
            return True
    except OSError:
        return False


def strategy_when_ready(
    resolver: tf.distribute.cluster_resolver.ClusterResolver | None,
    patience: float,
    arguments: dict[str, object],
) -> tf.distribute.ParameterServerStrategy:
    """Return a ParameterServerStrategy once its servers listen."""
    resolver = resolver or tf.distribute.cluster_resolver.TFConfigClusterResolver()
    wait_for(resolver.cluster_spec().as_dict(), patience)
    return tf.distribute.ParameterServerStrategy(resolver, **arguments)
