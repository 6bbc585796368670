"""A backend's updates within a larger function of JAX: collecting and learning in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import jax
import keras

from tandem.backends.backend import Guarded
from tandem.backends.keras_jax import once, options
from tandem.backends.keras_networks import KerasNetwork
from tandem.types import Array, Batch, Tree, Variable, tree_map


class Updates:
    """K guarded updates as a pure function, the same as those of the backend's compiled call.

    variables: of networks, targets and optimizers, in the order of `values` everywhere.
    names: of the metrics, once it has been traced.
    """

    def __init__(
        self,
        guarded: Guarded,
        late: Callable[[Array], None],
        variables: list[Variable],
        names: list[str],
        pairs: int,
    ) -> None:
        self._guarded, self._late = guarded, late
        self.variables, self.names = variables, names
        self.options = options(pairs)  # of the compiler, for the function around it

    @contextmanager
    def scope(self, values: list[Array]) -> Iterator[Callable[[], list[Array]]]:
        """While entered, the variables have these values; what is entered gives those that they
        have by then."""
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
        """Updates by the rows rows[k] of data [R, ...], by data [K, B, ...] where rows is None, or
        each by all of data [B, ...] where rows is (); none of them where `live` is false, nor after
        one that stopped or was not finite. Settings are [K] each.

        Returns (values, metrics [K, names], codes [K]: 0 made, 1 stopped, 2 + i not finite in the
        i-th optimizer, -1 not run)."""

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
        """The variables' arrays."""
        return [v._value for v in self.variables]

    def assign(self, values: list[Array]) -> None:
        """Gives the variables arrays of their own."""
        for v, x in zip(self.variables, values, strict=True):
            v._value = x
