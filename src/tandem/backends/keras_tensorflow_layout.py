"""Updates on several TensorFlow devices: each computes the gradient of its own rows, and one
all-reduce adds them up to the gradient of the batch. The rest of an update uses the whole gradient
on the first device, which has all variables."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext

import keras
import tensorflow as tf

from tandem.backends import keras_tensorflow, sharding, too_few
from tandem.backends.backend import Losses
from tandem.errors import SettingError
from tandem.types import Array, Batch, Tree, Variable

GOLDEN = 0x9E3779B9  # offset between the seeds of two devices


class TensorFlowLayout(sharding.Devices):
    """The `count` devices that share the rows of updates."""

    divides_rows = True

    strategy: tf.distribute.Strategy
    of_user = False  # whether the user made the strategy, and networks and optimizers in its scope

    def __init__(self, device: str, count: int, setting: str = "devices") -> None:
        """setting: the name that the user knows the count by."""
        kind = "CPU" if device == "cpu" else "GPU"
        there = tf.config.list_logical_devices(kind)
        if len(there) < count:
            fix = (
                "call tf.config.set_logical_device_configuration("
                "tf.config.list_physical_devices('CPU')[0], "
                f"[tf.config.LogicalDeviceConfiguration()] * {count}) where your program begins"
            )
            raise too_few("tensorflow", device, count, len(there), fix, setting)
        # on CPUs, several concurrent sums have no benefit
        options = {"cross_device_ops": tf.distribute.ReductionToOneDevice()}
        self.strategy = tf.distribute.MirroredStrategy(
            [f"{kind}:{i}" for i in range(count)], **(options if device == "cpu" else {})
        )
        self.count = count

    @classmethod
    def of_strategy(cls, strategy: tf.distribute.MirroredStrategy) -> TensorFlowLayout:
        """Create the layout of a user's strategy."""
        layout = cls.__new__(cls)
        layout.strategy, layout.count = strategy, strategy.num_replicas_in_sync
        layout.of_user = True
        return layout

    def fits(self, given: object) -> bool:
        """True if the layout matches the user's strategy."""
        return given is self.strategy if self.of_user else given == self.count

    def scope(self) -> AbstractContextManager[object]:
        """Return the scope in which a user's networks are trained."""
        return self.strategy.scope() if self.of_user else nullcontext()

    def check(
        self, variables: Iterable[Variable], optimizers: Iterable[keras.optimizers.Optimizer]
    ) -> None:
        """Raise SettingError if a variable, or an optimizer that has trained, was created outside
        the scope of the user's strategy, or if only the first device could read a variable."""
        known = self.strategy if self.of_user else None
        for v in variables:
            if known is None and self.count > 1 and not isinstance(v, keras.Variable):
                raise SettingError(
                    f"{v.name!r} is a tf.Variable on one device, but strategy={self.count}.",
                    "Keras variables, or a strategy whose scope contains all of them",
                    "make it a keras.Variable.",
                )
            if (other := strategy_of(v)) is not known:
                raise _elsewhere(f"the variable {v.name!r}", known, other)
        for o in optimizers:
            if known is not None and o.built and o._distribution_strategy is not known:
                raise _elsewhere(f"the optimizer {o.name!r}", known, None)

    def even(self, batch: Batch) -> bool:
        """True if the rows of a batch divide evenly."""
        return sharding.divides(batch, self.count, self.together)

    def parts(self, batch: Batch) -> int:
        """Return the number of devices that share the rows of a batch."""
        return self.count if self.even(batch) else 1

    def apply(
        self,
        optimizer: keras.optimizers.Optimizer,
        gradients: list[Array],
        trained: list[Variable],
        fine: Array,
    ) -> None:
        """Make a step of a Keras optimizer against gradients of the whole batch. An optimizer
        created in the scope of the strategy steps on every device. (If the update is not `fine`, it
        is undone later.)"""
        if not self.of_user:
            optimizer.apply(gradients, trained)
            return
        # Keras would clip each device's part and then add the parts up, but each device has the
        # whole
        optimizer._all_reduce_sum_gradients = lambda gradients: gradients
        try:
            self.strategy.run(lambda: optimizer.apply([tf.identity(g) for g in gradients], trained))
        finally:
            del optimizer._all_reduce_sum_gradients

    def gradients(
        self,
        losses: Losses,
        batch: Batch,
        groups: list[list[Variable]],
        variables: list[Variable],
    ) -> tuple[list[Array], dict[str, Array], list[list[Array]]]:
        """Return the result of `keras_tensorflow.gradients`, where the losses of the parts add up.
        A batch that does not divide evenly is computed on one device. Statistics updated by the
        forward pass are averaged over the parts."""

        def of(b: Batch) -> Tree:
            return keras_tensorflow.gradients(losses, b, groups, variables)

        if not self.even(batch):
            return _alone(of, batch, variables)
        return self._summed(of, batch, variables)

    def sum(self, of: Callable[[Batch], Tree], batch: Batch, variables: list[Variable]) -> Tree:
        """Sum a function that reads `variables` over the parts of a batch."""
        return self._summed(lambda b: (of(b), {}, []), batch, variables)[0]

    def _summed(
        self, of: Callable[[Batch], Tree], batch: Batch, variables: list[Variable]
    ) -> tuple[Tree, dict[str, Array], list[list[Array]]]:
        """Return (values, aux of each row, gradients) of a batch from those of its parts: sums, and
        rows in their original order. Each device receives all weights."""
        variables, before = _values(variables)
        seeds = [i for i, v in enumerate(variables) if v.dtype == "uint32"]
        shapes: list[Tree] = []
        # variables that the forward pass changes: statistics, and integers
        averaged: list[int] = []
        counted: list[int] = []

        @tf.function(jit_compile=True, autograph=False)
        def of_part(rank: Array) -> Tree:
            values = list(before)
            for i in seeds:  # dropout seeds: each part has its own, the first part the original
                dtype = values[i].dtype
                values[i] = values[i] + tf.cast(rank, dtype) * tf.constant(GOLDEN, dtype)
            with keras.StatelessScope(list(zip(variables, values, strict=True))) as scope:
                value, aux, grads = of(self._shard(batch, rank))
            now = [scope.get_current_value(v) for v in variables]
            moved = [i for i, (x, old) in enumerate(zip(now, values, strict=True)) if x is not old]
            averaged[:] = [i for i in moved if "float" in variables[i].dtype]
            counted[:] = [i for i in moved if i not in averaged]
            wide = {n: self._spread(x, rank) for n, x in aux.items()}
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
        return value, self._own(aux), grads

    def _shard(self, batch: Batch, rank: Array) -> Batch:
        """Return the rows of a device."""
        return sharding.shard(batch, rank, self.count, self.together)

    def _spread(self, x: Array, rank: Array) -> Array:
        """Return a device's results for its rows, at their positions among all rows."""
        return sharding.spread(x, tf.one_hot(rank, self.count), self.together)

    def _own(self, aux: Tree) -> Tree:
        """Return the part of `aux` for this process's batch from that of all rows."""
        return aux


def _values(variables: Iterable[Variable]) -> tuple[list[Variable], list[Array]]:
    """Return the Keras variables among these, and their values from any device."""
    known = [v for v in variables if isinstance(v, keras.Variable)]
    return known, [tf.identity(v.value) for v in known]


def _alone(of: Callable[[Batch], Tree], batch: Batch, variables: list[Variable]) -> Tree:
    """Return `of(batch)`, computed on one device although variables may be on several."""
    variables, before = _values(variables)
    with keras.StatelessScope(list(zip(variables, before, strict=True))) as scope:
        found = of(batch)
    for v, old in zip(variables, before, strict=True):
        if (new := scope.get_current_value(v)) is not old:
            v.assign(new)
    return found


def strategy_of(variable: Variable) -> tf.distribute.Strategy | None:
    """Return the strategy in whose scope a variable was created, or None."""
    inner = getattr(variable, "_value", variable)
    strategy = getattr(inner, "_distribute_strategy", None)
    # a variable on a server has another wrapper
    within = getattr(inner, "_v", None) if strategy is None else None
    return getattr(within, "_distribute_strategy", None) if within is not None else strategy


def _elsewhere(what: str, strategy: object, other: object) -> SettingError:
    """Return the error for an object that was not created in the scope of its strategy."""
    where = "outside strategy.scope()" if other is None else "in another strategy's scope"
    if strategy is None:
        fix = "give that strategy instead of a number."
        return SettingError(f"{what} was created in a strategy's scope.", "no strategy", fix)
    return SettingError(
        f"{what} was created {where}.",
        "an agent and trained optimizers created in the scope of the strategy",
        "with strategy.scope(): agent = ...; optimizer = ...",
    )
