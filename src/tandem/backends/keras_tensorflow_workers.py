"""Several TensorFlow processes that learn together under a MultiWorkerMirroredStrategy: each has
its own rows for an update, and all make the same step."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import numpy as np
import tensorflow as tf

from tandem.backends import sharding
from tandem.backends.keras_tensorflow_layout import TensorFlowLayout
from tandem.errors import WorkerError
from tandem.types import AnyArray, Array, Batch, Tree, Variable

LOST = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.InternalError,
)


class WorkerLayout(TensorFlowLayout):
    """The devices of all workers. A batch contains this worker's rows, which are divided among its
    own devices."""

    by_rounds = True

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        self.strategy, self.of_user = strategy, True
        self.count = strategy.num_replicas_in_sync
        resolver = strategy.cluster_resolver
        jobs = resolver.cluster_spec().as_dict() if resolver is not None else {}
        chiefs = len(jobs.get("chief", ()))
        self.workers = max(1, chiefs + len(jobs.get("worker", ())))
        self.rank = 0
        if self.workers > 1 and resolver.task_type == "worker":
            self.rank = chiefs + int(resolver.task_id)
        self._task = f"{resolver.task_type} {resolver.task_id}" if jobs else ""
        self.here = self.count // self.workers
        self._sum: Callable[[Array], Array] = tf.function(
            lambda x: strategy.reduce(
                tf.distribute.ReduceOp.SUM, strategy.run(lambda: tf.identity(x)), axis=None
            ),
            autograph=False,
        )

    def gather(self, values: Iterable[int]) -> AnyArray:
        """Return integers from each worker, int64 [workers, values], after waiting for all of them.
        Raises WorkerError if one is lost."""
        own = np.array(list(values), np.int64)
        table = np.zeros((self.workers, len(own)), np.int64)
        table[self.rank] = own
        if self.workers == 1:
            return table
        with self.watched():
            return np.asarray(self._sum(tf.constant(table))) // self.here

    def share(self, variables: Iterable[Variable]) -> None:
        """Give all workers the first worker's values."""
        if self.workers == 1:
            return
        own = list(variables)
        for kind in ("float32", "int64"):
            chosen = [v for v in own if ("float" in v.dtype) == (kind == "float32")]
            if not chosen:
                continue
            flat = [tf.reshape(tf.cast(tf.identity(v.value), kind), (-1,)) for v in chosen]
            values = tf.concat(flat, 0)
            with self.watched():
                whole = self._sum(values if self.rank == 0 else tf.zeros_like(values))
            parts = tf.split(whole, [int(np.prod(v.shape)) for v in chosen])
            for v, x in zip(chosen, parts, strict=True):
                x = x / self.here if kind == "float32" else x // self.here
                v.assign(tf.cast(tf.reshape(x, v.shape), v.dtype))

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Raise WorkerError if workers lose each other in the block."""
        try:
            yield
        except LOST as error:
            if self.workers == 1:
                raise
            named = re.findall(r"/job:(\w+)/(?:replica:\d+/)?task:(\d+)", str(error))
            tasks = dict.fromkeys(" ".join(one) for one in named)
            others = [task for task in tasks if task != self._task]
            if not others:
                others = [f"worker {1 - self.rank}" if self.workers == 2 else "another one"]
            raise WorkerError(
                f"worker {self.rank} of {self.workers} has lost {', '.join(others)}.",
                "all workers of TF_CONFIG's cluster until training ends",
                "check the lost worker's output; then restart all workers, and restore the last "
                "saved files.",
            ) from error

    # Rows

    def even(self, batch: Batch) -> bool:
        """True if the rows of a batch divide evenly among this worker's devices."""
        return sharding.divides(batch, self.here, self.together)

    def parts(self, batch: Batch) -> int:
        """Return the number of devices that share the rows of all workers' batches."""
        return self.count

    def _shard(self, batch: Batch, rank: Array) -> Batch:
        return sharding.shard(batch, rank - self.rank * self.here, self.here, self.together)

    def _spread(self, x: Array, rank: Array) -> Array:
        here = tf.one_hot(rank - self.rank * self.here, self.here)
        own = sharding.spread(x, here, self.together)
        none = tf.zeros_like(own)
        before, after = [none] * self.rank, [none] * (self.workers - 1 - self.rank)
        return tf.concat([*before, own, *after], -1)

    def _own(self, aux: Tree) -> Tree:
        """Return the part of `aux` for this worker's rows from that of all workers."""
        return {n: tf.split(x, self.workers, -1)[self.rank] for n, x in aux.items()}
