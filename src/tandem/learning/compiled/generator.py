"""Random number generator of compiled runs."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from tandem.types import Array

Size = int | tuple[int, ...] | None  # shape of the sample; None: a single number


class Keyed:
    """The numpy.random.Generator methods that algorithms use, implemented with a jax.random key, so
    that algorithms sample in traced functions as on the host. Each call splits the key; a `Keyed`
    is valid within one trace."""

    def __init__(self, key: Array) -> None:
        self._key = key

    def _next(self) -> Array:
        self._key, one = jax.random.split(self._key)
        return one

    def random(self, size: Size = None, dtype: object = None) -> Array:
        return jax.random.uniform(self._next(), _shape(size))

    def uniform(self, low: Array = 0.0, high: Array = 1.0, size: Size = None) -> Array:
        return jax.random.uniform(self._next(), _shape(size), minval=low, maxval=high)

    def standard_normal(self, size: Size = None, dtype: object = None) -> Array:
        return jax.random.normal(self._next(), _shape(size))

    def standard_exponential(self, size: Size = None, dtype: object = None) -> Array:
        return jax.random.exponential(self._next(), _shape(size))

    def logistic(self, size: Size = None) -> Array:
        return jax.random.logistic(self._next(), _shape(size))

    def integers(self, low: Array, high: Array = None, size: Size = None) -> Array:
        low, high = (0, low) if high is None else (low, high)
        return jax.random.randint(self._next(), _shape(size), jnp.asarray(low), jnp.asarray(high))

    def permutation(self, n: int) -> Array:
        return jax.random.permutation(self._next(), n)


def _shape(size: Size) -> tuple[int, ...]:
    return () if size is None else (size,) if isinstance(size, int) else tuple(size)
