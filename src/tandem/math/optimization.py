"""Conjugate gradients for natural gradient steps, RAdam's rectification of early steps, and
normalization of weights to unit length."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tandem import ops
from tandem.errors import same_shape
from tandem.types import AnyArray, Array

Vectors = tuple[Array, Array, Array, Array]  # x, residual, direction, residual's squared length
# (n, body, state) -> body(body(... body(state))), n times: the backend's loop
Repeat = Callable[[int, Callable[[Vectors], Vectors], Vectors], Vectors]


SHORTEST = 1e-8  # lower limit of a length in a division


def on_sphere(x: Array) -> Array:
    """Normalize rows of x [..., F] to length 1: x / ||x|| (Lee et al. 2025, arXiv:2502.15280, eq.
    6), with a finite gradient at 0."""
    xp = ops.of(x)
    return x / xp.sqrt(xp.sum(x * x, -1) + SHORTEST**2)[..., None]


def unit_columns(x: Array) -> Array:
    """Normalize weights [inputs, units] to length 1 for each unit (Lee et al. 2025, eq. 21)."""
    xp = ops.of(x)
    return x / xp.sqrt(xp.sum(x * x, 0) + SHORTEST**2)


def rectification(updates: AnyArray | int, beta2: float) -> AnyArray:
    """Return RAdam's factor of Adam's step (Liu et al. 2020, arXiv:1908.03265, algorithm 2), r_t.

    It is 0 for momentum steps that are not adapted because the variance is not yet known: up to
    rho_t = 5, as in torch and optax (the paper: 4).

    Args:
        updates: t, int [...], from 1.
        beta2: Decay of the mean square.

    Returns:
        r_t, float32 [...].
    """
    t, limit = np.asarray(updates, np.float64), 2 / (1 - beta2) - 1
    if limit <= 5:
        return np.zeros(t.shape, np.float32)
    rho = np.maximum(limit - 2 * t * beta2**t / (1 - beta2**t), 5.0)
    square = (rho - 4) * (rho - 2) * limit / ((limit - 4) * (limit - 2) * rho)
    return np.where(rho > 5.0, np.sqrt(square), 0.0).astype(np.float32)


def conjugate_gradient(
    product: Callable[[Array], Array], b: Array, iterations: int, repeat: Repeat
) -> Array:
    """Return an approximate solution of product(x) = b (Hestenes & Stiefel 1952,
    doi:10.6028/jres.049.044, eq. 3:1; Schulman et al. 2015, arXiv:1502.05477, appendix C).

    Args:
        product: x [n] -> A x [n] for a positive definite matrix A.
        b: [n].
        iterations: Number of search directions; n would suffice without rounding.
        repeat: The backend's loop.

    Returns:
        x, [n].

    Raises:
        SpaceError: if b does not have one axis.
    """
    same_shape("b", b, (-1,))
    xp = ops.of(b)

    def body(state: Vectors) -> Vectors:
        x, residual, direction, square = state
        image = product(direction)
        step = square / (xp.sum(direction * image) + 1e-10)
        residual = residual - step * image
        next_square = xp.sum(residual * residual)
        next_direction = residual + next_square / (square + 1e-10) * direction
        return x + step * direction, residual, next_direction, next_square

    return repeat(iterations, body, (0.0 * b, b, b, xp.sum(b * b)))[0]
