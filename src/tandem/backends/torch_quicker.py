"""Faster CPU replacements for tensor operations in graphs of updates."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import cache, reduce

import torch
from torch.fx import GraphModule

from tandem.networks.torch_products import LARGE, by_onednn
from tandem.types import Array

# Coefficients of x^1, x^3, ... and of x^0, x^2, ...
ABOVE = (
    4.89352455891786e-03, 6.37261928875436e-04, 1.48572235717979e-05, 5.12229709037114e-08,
    -8.60467152213735e-11, 2.00018790482477e-13, -2.76076847742355e-16,
)  # fmt: skip
BELOW = 4.89352518554385e-03, 2.26843463243900e-03, 1.18534705686654e-04, 1.19825839466702e-06


def tanh(x: Array) -> Array:
    """Compute tanh for float32 as Eigen and XLA do: a quotient of polynomials, accurate to 4e-7 and
    five times as fast."""
    x = x.clamp(-7.90531110763549805, 7.90531110763549805)
    square = x * x
    above, below = (reduce(lambda y, c: y * square + c, each[::-1]) for each in (ABOVE, BELOW))
    return x * above / below if x.dtype == torch.float32 else NotImplemented


def product(a: Array, b: Array) -> Array:
    """Multiply matrices. MKL takes up to five times as long if the result has few columns, like the
    gradient of a first layer."""
    few = 1 < b.shape[1] < min(a.shape[0], 33)
    return torch.mm(b.t(), a.t()).t().contiguous() if few else NotImplemented


def dense(bias: Array, x: Array, w: Array, **scales: float) -> Array:
    """Compute a dense layer. The compiler would turn an addition back into one operation that first
    copies the bias."""
    return NotImplemented if scales else torch.mm(x, w) - (-bias)


QUICKER: dict[torch._ops.OpOverload, Callable[..., Array]] = {
    torch.ops.aten.tanh.default: tanh,
    torch.ops.aten.mm.default: product,
    torch.ops.aten.addmm.default: dense,
}


def with_onednn(step: GraphModule) -> GraphModule:
    """Return a copy in which oneDNN multiplies large matrices if it is faster."""
    graph, aten = deepcopy(step), torch.ops.aten
    for node in graph.graph.find_nodes(op="call_function", target=aten.mm.default):
        a, b = node.args
        if by_onednn() and a.meta["val"].numel() * b.meta["val"].shape[1] >= LARGE:
            with graph.graph.inserting_before(node):
                node.args = a, graph.graph.call_function(aten.t.default, (b,))
            node.target = _linear()
    graph.recompile()
    return graph


@cache
def _linear() -> torch._ops.OpOverload:
    """Return x W^T by oneDNN as an operation that the compiler does not change. For torch's own it
    expects constant weights."""
    # imports torch's compiler, which takes a second
    from torch._inductor.ir import FixedLayout, TensorBox  # here and below: slow to import
    from torch._inductor.lowering import lowerings
    from torch._inductor.mkldnn_ir import LinearUnary, _create_output_node

    @torch.library.custom_op("tandem::linear", mutates_args=())
    def linear(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(x, w)

    @linear.register_fake
    def _(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return x.new_empty(x.shape[0], w.shape[0])

    def lowered(x: TensorBox, w: TensorBox) -> TensorBox:
        inputs, constants = [LinearUnary.realize_input(t) for t in (x, w)], [None, "none", [-1], ""]
        size = [x.get_size()[0], w.get_size()[0]]
        layout = FixedLayout(device=x.get_device(), dtype=x.get_dtype(), size=size)
        made = LinearUnary(layout=layout, inputs=inputs, constant_args=constants)
        return TensorBox.create(_create_output_node(made))

    op = torch.ops.tandem.linear.default
    lowerings[op] = lowered
    return op
