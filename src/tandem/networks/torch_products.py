"""Dense layers on CPUs, where large matrix products take most of the time."""

from __future__ import annotations

from functools import cache

import torch
from torch.autograd.function import FunctionCtx
from torch.nn import functional

from tandem.platforms import processor
from tandem.types import Array

LARGE = 2**21  # number of multiplications


@cache
def by_onednn() -> bool:
    """True if oneDNN is faster than MKL on this CPU. MKL does not use AVX-512 on AMD CPUs and takes
    twice as long."""
    return hasattr(torch.ops.mkldnn, "_linear_pointwise") and all(
        word in processor() for word in ("AuthenticAMD", "avx512f")
    )


def linear(x: Array, weight: Array, bias: Array) -> Array:
    """Compute x W^T + b: [B, inputs] to [B, units]."""
    large = x.ndim == 2 and x.numel() * len(weight) >= LARGE
    # not for stand-ins of tensors, as during tracing
    if not large or type(x) is not torch.Tensor or x.device.type != "cpu" or not by_onednn():
        return functional.linear(x, weight, bias)
    return _Linear.apply(x, weight, bias)


def _product(x: Array, weight: Array, bias: Array | None = None) -> Array:
    return torch.ops.mkldnn._linear_pointwise.default(x, weight, bias, "none", [], "")


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: Array, weight: Array, bias: Array) -> Array:
        ctx.save_for_backward(x, weight)
        return _product(x, weight, bias)

    @staticmethod
    def backward(ctx: FunctionCtx, g: Array) -> tuple[Array | None, ...]:
        x, weight = ctx.saved_tensors
        # oneDNN's product has no gradient
        product = functional.linear if torch.is_grad_enabled() else _product
        wanted = ctx.needs_input_grad
        return (
            product(g, weight.t()) if wanted[0] else None,
            product(g.t(), x.t()) if wanted[1] else None,
            g.sum(0) if wanted[2] else None,
        )
