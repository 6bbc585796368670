"""Updates on several JAX devices: rows are divided among the devices, everything else is
replicated. XLA's partitioner inserts the sums over all rows, so that an update equals that of one
device except for the order of summation.

Rows are divided at the start of an update. Time-major steps of sequences are divided at each
network instead: XLA has no layout for every S-th of the rows [L * S] of S sequences, and would
compute all of them on each device.
"""

from __future__ import annotations

import os

import jax
import keras
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tandem.backends import no_strategy, sharding, too_few
from tandem.types import Array, Batch, Tree, Variable, leaves, tree_map

ROWS = "rows"  # the mesh's only axis
HOST = "xla_force_host_platform_device_count"


def make_host_devices(count: int) -> None:
    """Make JAX create this number of CPU devices. No effect after JAX has started, or if XLA_FLAGS
    sets the number."""
    if HOST in os.environ.get("XLA_FLAGS", "") or jax.config.jax_num_cpu_devices >= count:
        return
    try:
        jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError:  # already started: `JaxLayout` checks their number
        return


class JaxLayout(sharding.Devices):
    """The placement of arrays for a call of updates on `count` devices, each with all weights. XLA
    divides the rows."""

    def __init__(self, device: str, count: int, setting: str = "devices") -> None:
        """setting: the name that the user knows the count by."""
        there = jax.local_devices(backend="cpu" if device == "cpu" else None)
        if len(there) < count:
            fix = (
                f"set the environment variable JAX_NUM_CPU_DEVICES={count} before anything imports "
                "jax"
            )
            raise too_few("jax", device, count, len(there), fix, setting)
        self._spread(there[:count])

    @classmethod
    def of(cls, given: object, coordinator: None = None) -> JaxLayout:
        """Create a layout of the devices of a user's Mesh, or of a number of devices. Raises
        SettingError for anything else."""
        if isinstance(given, int) and not isinstance(given, bool) and given > 0:
            make_host_devices(given)
            return cls("cpu" if jax.default_backend() == "cpu" else "cuda", given, "strategy")
        if not isinstance(given, Mesh):
            raise no_strategy(given, "how many devices, or a jax.sharding.Mesh of them")
        layout = cls.__new__(cls)
        layout._spread(list(given.devices.flat))
        return layout

    def fits(self, given: object) -> bool:
        """True if the layout matches the user's strategy."""
        return given == self.count or (
            isinstance(given, Mesh) and list(given.devices.flat) == self._devices
        )

    def _spread(self, devices: list[jax.Device]) -> None:
        mesh = Mesh(np.array(devices), (ROWS,))
        self.count, self._devices = len(devices), devices
        self._even = False  # whether the sequences of the traced update divide evenly
        self.everywhere = NamedSharding(mesh, PartitionSpec())
        self._first = NamedSharding(mesh, PartitionSpec(ROWS))
        self._second = NamedSharding(mesh, PartitionSpec(None, ROWS))
        # by variable: the array left in it, and the replicated array that it is the first shard of
        self._kept: dict[int, tuple[Array, Array]] = {}

    def divide(self, b: Batch) -> Batch:
        """At the start of an update, divide the rows [B, ...] of a batch among the devices. If they
        do not divide evenly, every device has all of them."""
        self._even = leaves(b)[0].shape[0] % self.count == 0
        return b if self.time_first else tree_map(self._laid, b)

    def _laid(self, x: Array) -> Array:
        if x.shape[0] % self.count == 0:
            x = jax.lax.with_sharding_constraint(x, self._first)
        return x

    def share(self, x: Array) -> Array:
        """Within an update, replicate x on all devices."""
        return jax.lax.with_sharding_constraint(x, self.everywhere)

    def call(self, model: keras.Model, x: Tree, training: bool) -> Array:
        """Within an update, return the output of a model for rows. If they are time-major, each
        device computes its part."""
        if not self.time_first or not self._even:
            return model(x, training=training)
        if isinstance(x, dict) and "state" in x:
            return self._call_with_memory(model, x, training)
        return self.share(model(tree_map(self._laid, x), training=training))

    def _call_with_memory(self, model: keras.Model, x: dict[str, Tree], training: bool) -> Array:
        """Call a recurrent network on L steps of S sequences; each device processes its own
        sequences."""
        n, sequences = self.count, x["state"].shape[0]

        def apart(rows: Array) -> Array:  # [L * S, ...] as [n, L * S / n, ...]
            rows = rows.reshape(-1, n, sequences // n, *rows.shape[1:])
            rows = jax.numpy.moveaxis(rows, 1, 0)
            return self._laid(rows.reshape(n, -1, *rows.shape[3:]))

        variables, moved = model.variables, list[int]()
        values = [v.value for v in variables]

        def part(own: Tree) -> Array:
            with keras.StatelessScope(list(zip(variables, values, strict=True))) as scope:
                out = model(own, training=training)
            now = [scope.get_current_value(v) for v in variables]
            moved.extend(1 for new, old in zip(now, values, strict=True) if new is not old)
            return out

        state = self._laid(x["state"].reshape(n, -1, *x["state"].shape[1:]))
        out = jax.vmap(part)({**tree_map(apart, {**x, "state": ()}), "state": state})
        if moved:  # batch norm, dropout: over all rows, as on one device
            return model(x, training=training)
        out = jax.numpy.moveaxis(out.reshape(n, -1, sequences // n, out.shape[-1]), 0, 1)
        return self.share(out.reshape(-1, out.shape[-1]))

    def put(self, data: Batch, rows: Array) -> Batch:
        """Place the data of a call: batches [K, B, ...], whose rows are divided if `rows` [K]
        selects the batch of each update; or data [N, ...] with `rows` [K, B] per update, replicated
        on each device."""
        whole = rows.ndim == 1 and not self.time_first

        def placed(x: Array) -> Array:
            even = whole and x.shape[1] % self.count == 0
            return jax.device_put(x, self._second if even else self.everywhere)

        return tree_map(placed, data)

    def read(self, variables: list[Variable]) -> list[Array]:
        """Return the variables' values, replicated on each device."""
        values = []
        for v in variables:
            first, everywhere = self._kept.get(id(v), (None, None))
            written = v._value is not first  # changed since the last call
            values.append(jax.device_put(v._value, self.everywhere) if written else everywhere)
        return values

    def write(self, variables: list[Variable], values: list[Array]) -> None:
        """Store replicated values in the variables as arrays of the first device: code that reads
        them between calls, to act or to save, runs on one device."""
        for v, x in zip(variables, values, strict=True):
            v._value = x.addressable_data(0)
            self._kept[id(v)] = v._value, x


LAYOUT, of = JaxLayout, JaxLayout.of  # looked up by `devices_of`
