"""Conjugate gradients, for natural steps."""

from __future__ import annotations

from collections.abc import Callable

from tandem import ops
from tandem.errors import same_shape
from tandem.types import Array

Vectors = tuple[Array, Array, Array, Array]  # x, residual, direction, residual's squared length
# (n, body, state) -> body(body(... body(state))), n times: the engine's loop
Repeat = Callable[[int, Callable[[Vectors], Vectors], Vectors], Vectors]


def conjugate_gradient(
    product: Callable[[Array], Array], b: Array, iterations: int, repeat: Repeat
) -> Array:
    """An approximate solution of product(x) = b (Hestenes & Stiefel 1952,
    doi:10.6028/jres.049.044, eq. 3:1; Schulman et al. 2015, arXiv:1502.05477, appendix C).

    product: x [n] -> A x [n] of a positive definite matrix A.
    b: [n].
    iterations: how many directions are searched; n would be enough without rounding.
    repeat: the engine's loop.

    Returns x, [n]. Raises SpaceError where b has not one axis.
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
