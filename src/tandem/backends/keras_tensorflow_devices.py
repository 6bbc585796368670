"""Several devices of TensorFlow for one update: each takes the gradient of its own rows, and one
all-reduce adds them up to that of the batch. Everything else of an update is made of the whole
gradient, on the first device, which has all variables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tandem.backends import keras_tensorflow, sharding, too_few
from tandem.types import Array, Batch, Tree, Variable

GOLDEN = 0x9E3779B9  # between the seeds of two devices


def make_host_devices(count: int) -> None:
    """Before TensorFlow starts: has it make so many devices of the processor. Without effect
    afterwards, and where a program has said how many."""
    (processor,) = tf.config.list_physical_devices("CPU")
    if tf.config.get_logical_device_configuration(processor) is not None:
        return
    parts = [tf.config.LogicalDeviceConfiguration()] * count
    try:
        tf.config.set_logical_device_configuration(processor, parts)
    except RuntimeError:  # it has started: `Layout` looks how many there are
        return


class Layout:
    """The `count` devices among which the rows of updates are divided."""

    divides_rows = True  # by itself; on JAX XLA does it
    time_first = False
    together = 1  # rows of a step, one of each agent

    def __init__(self, device: str, count: int) -> None:
        kind = "CPU" if device == "cpu" else "GPU"
        there = tf.config.list_logical_devices(kind)
        if len(there) < count:
            fix = (
                "call tf.config.set_logical_device_configuration("
                "tf.config.list_physical_devices('CPU')[0], "
                f"[tf.config.LogicalDeviceConfiguration()] * {count}) where your program begins"
            )
            raise too_few("tensorflow", device, count, len(there), fix)
        # on processors there is nothing to be gained from several sums at once
        options = {"cross_device_ops": tf.distribute.ReductionToOneDevice()}
        self.strategy: Any = tf.distribute.MirroredStrategy(
            [f"{kind}:{i}" for i in range(count)], **(options if device == "cpu" else {})
        )
        self.count = count

    def even(self, batch: Batch) -> bool:
        """Whether the rows of a batch divide evenly."""
        return sharding.divides(batch, self.count, self.together)

    def gradient(
        self,
        loss: Callable[[Batch], Any],
        batch: Batch,
        trained: list[Variable],
        variables: list[Variable],
    ) -> tuple[Array, Any, list[Array]]:
        """As `keras_tensorflow.gradient`, where the losses of parts add up. Statistics that a
        forward pass moves are the means of the parts'."""

        def of(b: Batch) -> Tree:
            return keras_tensorflow.gradient(loss, b, trained, variables)

        value, aux, grads = self._summed(of, batch, variables)
        return value, aux, grads

    def sum(self, of: Callable[[Batch], Tree], batch: Batch, variables: list[Variable]) -> Tree:
        """The values for the parts of a batch, added up, of a function that reads `variables`."""
        return self._summed(lambda b: (of(b), {}, []), batch, variables)[0]

    def _summed(
        self, of: Callable[[Batch], Tree], batch: Batch, variables: list[Variable]
    ) -> tuple[Any, dict[str, Array], Any]:
        """(values, aux of each row, gradients) of a batch, whose parts give such: sums, and rows at
        their places. All weights are handed to each device."""
        before = [tf.identity(v.value) for v in variables]  # a value, of whichever device
        seeds = [i for i, v in enumerate(variables) if v.dtype == "uint32"]
        shapes: list[Any] = []
        # variables that the forward pass moves: statistics, and whole numbers
        averaged: list[int] = []
        counted: list[int] = []

        @tf.function(jit_compile=True, autograph=False)
        def of_part(rank: Any) -> Tree:
            values = list(before)
            for i in seeds:  # of dropout: each part has its own
                values[i] = _folded(values[i], rank)
            with keras.StatelessScope(list(zip(variables, values, strict=True))) as scope:
                value, aux, grads = of(sharding.shard(batch, rank, self.count, self.together))
            now = [scope.get_current_value(v) for v in variables]
            moved = [i for i, (x, old) in enumerate(zip(now, values, strict=True)) if x is not old]
            averaged[:] = [i for i in moved if "float" in variables[i].dtype]
            counted[:] = [i for i in moved if i not in averaged]
            here = tf.one_hot(rank, self.count)
            wide = {n: sharding.spread(x, here, self.together) for n, x in aux.items()}
            means = [now[i] / self.count for i in averaged]
            steps = [now[i] - values[i] for i in counted]
            shapes[:] = [(value, wide, grads, means)]
            flat = keras.tree.flatten(shapes[0])
            return tf.concat([tf.reshape(x, (-1,)) for x in flat], 0), steps

        def replica() -> Tree:
            return of_part(tf.distribute.get_replica_context().replica_id_in_sync_group)

        each, steps = self.strategy.run(replica)
        whole = self.strategy.reduce(tf.distribute.ReduceOp.SUM, each, axis=None)
        flat = keras.tree.flatten(shapes[0])
        parts = tf.split(whole, [x.shape.num_elements() for x in flat])
        like = [tf.reshape(x, of.shape) for x, of in zip(parts, flat, strict=True)]
        value, aux, grads, means = keras.tree.pack_sequence_as(shapes[0], like)
        for i, x in zip(averaged, means, strict=True):
            variables[i].assign(x)
        for i, x in zip(counted, steps, strict=True):
            (own, *_) = self.strategy.experimental_local_results(x)
            variables[i].assign(before[i] + own)
        return value, aux, grads


def _folded(seed: Any, rank: Any) -> Any:
    """A generator's state of its own for each device; the first keeps it."""
    return seed + tf.cast(rank, seed.dtype) * tf.constant(GOLDEN, seed.dtype)
