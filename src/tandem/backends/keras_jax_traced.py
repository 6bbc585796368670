"""A backend's updates within a larger JAX function: data collection and learning in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import jax
import keras

from tandem.backends.backend import Guarded
from tandem.backends.keras_jax import compiled, once
from tandem.backends.keras_networks import KerasNetwork
from tandem.types import Array, Batch, Tree, Variable, tree_map


class Updates:
    """K guarded updates as a pure function, identical to the backend's compiled call.

    variables: those of networks, targets and optimizers, in the order of `values` everywhere.
    names: names of the metrics, available after tracing.
    """

    compiled = staticmethod(compiled)  # compiles the enclosing function

    def __init__(
        self,
        guarded: Guarded,
        late: Callable[[Array], None],
        variables: list[Variable],
        names: list[str],
    ) -> None:
        self._guarded, self._late = guarded, late
        self.variables, self.names = variables, names

    @contextmanager
    def scope(self, values: list[Array]) -> Iterator[Callable[[], list[Array]]]:
        """Give the variables these values within the block. Yields a function that returns their
        current values."""
        pairs = list(zip(self.variables, values, strict=True))
        before, KerasNetwork.traced = KerasNetwork.traced, True
        try:
            with keras.StatelessScope(pairs) as scope:
                yield lambda: [scope.get_current_value(v) for v in self.variables]
        finally:
            KerasNetwork.traced = before

    def __call__(
        self, values: list[Array], data: Batch, settings: dict[str, Array], rows: Array, live: Array
    ) -> tuple[list[Array], Array, Array]:
        """Make updates from the rows rows[k] of data [R, ...]; from data [K, B, ...] if rows is
        None; or each from all of data [B, ...] if rows is (). Makes none if `live` is false, and
        none after an update that stopped or was not finite. Settings are [K] each.

        Returns (values, metrics [K, names], codes [K]: 0 made, 1 stopped, 2 + i not finite in
        optimizer i, -1 not run).
        """

        def one(carry: Tree, k: Tree) -> Tree:
            values, active = carry
            settings, at = k
            b = at if rows is None else data if whole else tree_map(lambda x: x[at], data)
            b = b._replace(settings=settings)
            values, _, keep, ((metrics, _), code) = once(
                self._guarded, self._late, self.variables, values, b, active
            )
            return (values, keep), (metrics, code)

        whole = isinstance(rows, tuple)
        each = (settings, data if rows is None else rows)
        (values, _), (metrics, codes) = jax.lax.scan(one, (values, live), each)
        return values, metrics, codes

    def current(self) -> list[Array]:
        """Return the variables' arrays."""
        return [v._value for v in self.variables]

    def assign(self, values: list[Array]) -> None:
        """Set the variables' arrays."""
        for v, x in zip(self.variables, values, strict=True):
            v._value = x
