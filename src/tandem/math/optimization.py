"""Conjugate gradients, for natural steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tandem import ops
from tandem.types import Array

Repeat = Callable[[int, Callable[[Any], Any], Any], Any]  # (n, body, state) -> body(body(...state))


def conjugate_gradient(
    product: Callable[[Array], Array], b: Array, iterations: int, repeat: Repeat
) -> Array:
    """x [n] with product(x) near b [n], for a positive definite linear map (Hestenes & Stiefel
    1952; Schulman et al. 2015, arXiv:1502.05477, appendix C). `repeat` is the engine's loop."""
    xp = ops.of(b)

    def body(state: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        x, residual, direction, size = state
        along = product(direction)
        step = size / (xp.sum(direction * along) + 1e-10)
        residual = residual - step * along
        smaller = xp.sum(residual * residual)
        return (
            x + step * direction,
            residual,
            residual + smaller / (size + 1e-10) * direction,
            smaller,
        )

    x: Array = repeat(iterations, body, (0.0 * b, b, b, xp.sum(b * b)))[0]
    return x
