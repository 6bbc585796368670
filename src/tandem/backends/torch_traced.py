"""Updates of a torch backend as graphs: functions from state to state.

An update is traced unchanged: while it runs, everything that it may change is replaced by copies,
which are tensors without data, and torch records the operations. The graph contains no Python and
changes nothing: it takes a state and returns a new one.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from tandem.backends import torch_optimizers as optimizers
from tandem.backends.torch_quicker import QUICKER
from tandem.math.optimization import rectification
from tandem.types import Array, Batch, Tree, Update, tree_map

if TYPE_CHECKING:
    from tandem.backends.torch import TorchBackend


class Uncapturable(Exception):
    """The reason why an update cannot be a graph."""


class Traced:
    """An update as the graph of a step: (state, whether to make the update; its own inputs; common
    inputs) -> (state, whether to make the next update; code, outputs).

    `state` contains the tensors that the update may change, except views of others.
    """

    def __init__(self, backend: TorchBackend, update: Callable[[Batch], Update]) -> None:
        self._backend, self._update = backend, update
        self._optimizers = backend._optimizers
        views = {id(p) for o in self._optimizers for p in o.parameters}
        others: dict[int, torch.Tensor] = {}
        for module in self._modules():
            own = *module._parameters.values(), *module._buffers.values(), *vars(module).values()
            others |= {id(x): x for x in own if isinstance(x, torch.Tensor) and id(x) not in views}
        for o in self._optimizers:
            if type(o.inner) not in STEPS:
                raise Uncapturable(f"the optimizer is an object, {type(o.inner).__name__}")
            others |= {id(x): x for x in o.inner.state[o.flat].values()}
        self._others = list(others)
        self.state = [x.detach() for x in (*(o.flat for o in self._optimizers), *others.values())]

    def _modules(self) -> Iterator[torch.nn.Module]:
        for net in self._backend.networks.values():
            yield from net.module.modules()

    def step(
        self, own: Tree, common: Tree
    ) -> tuple[GraphModule, pytree.TreeSpec, list[torch.Tensor]]:
        """Return the graph for inputs of these shapes, the structure of the update's outputs, and
        additional common inputs, which follow `common`.

        own: (settings; the batch, or its rows of `common`; whether to make the update).
        common: () or a batch.
        """
        (inputs, structure), given = pytree.tree_flatten((own, common)), list[pytree.TreeSpec]()
        n = len(self.state)

        def flat(*xs: torch.Tensor) -> list[torch.Tensor]:
            (settings, b, live), data = pytree.tree_unflatten(xs[n + 1 :], structure)
            if isinstance(b, torch.Tensor):
                b = tree_map(lambda x: x.index_select(0, b), data)
            new, code, out = self._run(
                list(xs[:n]), torch.logical_and(xs[n], live), b._replace(settings=settings)
            )
            outs, form = pytree.tree_flatten(tuple(out))
            given[:] = [form]
            # a loop cannot return a tensor twice, or an input unchanged
            return [x.clone() for x in (*new, code == 0, code, *outs)]

        whole = [*self.state, torch.tensor(True, device=self.state[0].device), *inputs]
        pure, constants = _traced(flat, whole)
        if any(n.plan is None and n.stateful_forward for n in self._backend.networks.values()):
            again, others = _traced(flat, whole)
            same = zip(others, constants, strict=False)
            if again.code != pure.code or not all(torch.equal(x, y) for x, y in same):
                raise Uncapturable("a module behaves differently at each call")
        for node in list(pure.graph.nodes):
            if node.target is torch.ops.aten.gt.Scalar and node.args[0].op == "placeholder":
                _skip_what_is_not_due(pure, node)
        return pure, given[0], [x.to(self.state[0].device) for x in constants]

    def _run(
        self, state: list[Array], active: Array, batch: Batch
    ) -> tuple[list[Array], Array, Update]:
        """Make the update from this state. Return (new state, code, outputs)."""
        backend, work = self._backend, [x.clone() for x in state]
        instead = dict(zip(self._others, work[len(self._optimizers) :], strict=True))
        for o, flat in zip(self._optimizers, work, strict=False):
            instead[id(o.flat)] = flat
            for p, part in zip(o.parameters, flat.split(o.sizes), strict=True):
                instead[id(p)] = part.view(p.shape).detach().requires_grad_()
        code = torch.zeros((), dtype=torch.int64, device=state[0].device)
        backend.tracing, backend._code = work, code
        try:
            with self._replaced(instead), torch.no_grad():
                out = self._update(batch)
            code = torch.where(active, backend._code, -1)
        finally:
            backend.tracing, backend._code = [], 0
        return (
            [torch.where(code == 0, x, old) for x, old in zip(work, state, strict=True)],
            code,
            out,
        )

    @contextmanager
    def _replaced(self, instead: dict[int, Array]) -> Iterator[None]:
        """Replace the tensors with these ids by others within the block."""
        buffers = [m._buffers for m in self._modules()]
        places: list[Any] = [*buffers, *(m._parameters for m in self._modules())]
        places += [vars(m) for m in self._modules()]
        for net in self._backend.networks.values():
            own = vars(net)
            places += [own[n] for n in ("weights", "unit", "_statistics", "named") if n in own]
        for o in self._optimizers:
            places += [vars(o), o.parameters, o.unit, o.inner.state[o.flat]]
        before = []
        for place in places:
            for key, x in [*(place.items() if isinstance(place, dict) else enumerate(place))]:
                if id(x) in instead:
                    before.append((place, key, x))
                    place[key] = instead[id(x)]
        kept = [(own, own.copy()) for own in (*buffers, *map(vars, self._modules()))]
        try:
            yield
            for now, put in kept:
                for name, x in now.items():
                    if isinstance(x, torch.Tensor) and x is not put.get(name):
                        raise Uncapturable(f"a module keeps another tensor as its {name!r}")
        finally:
            for now, put in kept:
                for name in [n for n, x in now.items() if isinstance(x, torch.Tensor)]:
                    if name in put:
                        now[name] = put[name]
                    else:
                        del now[name]
            for place, key, x in before:
                place[key] = x


def _traced(
    function: Callable[..., list[Array]], inputs: list[Array]
) -> tuple[GraphModule, list[torch.Tensor]]:
    """Trace a function of tensors to a graph that changes nothing. Return it with its additional
    inputs."""
    try:
        first = make_fx(function, tracing_mode="fake")(*inputs)
    except Exception as error:  # torch or a traced module may raise anything
        if isinstance(error, AssertionError) and "FakeTensor" in str(error):
            what = "a network uses a tensor that is no parameter, buffer or attribute of a module"
        elif "data-dependent" in str(error):
            what = "a network's Python code depends on the values of tensors"
        else:
            raise
        raise Uncapturable(what) from error
    for node in first.graph.nodes:
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            raise Uncapturable("a network samples random numbers, as dropout does")
    table = QUICKER if inputs[0].device.type == "cpu" else {}
    pure = make_fx(torch.func.functionalize(first), table, tracing_mode="fake")(*inputs)
    for node in pure.graph.nodes:
        if node.target is torch.ops.aten.copy.default:
            over, x = (n.meta["val"] for n in node.args)
            if (over.shape, over.dtype) == (x.shape, x.dtype):  # avoids computing `over`
                node.replace_all_uses_with(node.args[1])
    return pure, _as_inputs(pure)


def _as_inputs(graph: GraphModule) -> list[torch.Tensor]:
    """Turn a graph's constants into additional inputs, and return them: a loop must not have
    constants."""
    constants, nodes = [], list(graph.graph.nodes)
    last = [node for node in nodes if node.op == "placeholder"][-1]
    for node in nodes:
        if node.op == "get_attr":
            constants.append(getattr(graph, node.target))
            with graph.graph.inserting_after(last):
                last = graph.graph.placeholder(f"constant_{len(constants)}")
            last.meta.update(node.meta)
            node.replace_all_uses_with(last)
            graph.graph.erase_node(node)
    graph.graph.eliminate_dead_code()
    graph.recompile()
    return constants


def _skip_what_is_not_due(graph: GraphModule, due: Node) -> None:
    """Move nodes used only by `where(due, x, otherwise)` into a branch, so that they are computed
    only if due."""
    where, nodes = torch.ops.aten.where.self, graph.graph.nodes
    choices = [n for n in nodes if n.target is where and n.args[0] is due]
    if not choices:
        return
    inside = dict.fromkeys(n.args[2] for n in choices if not n.args[2].all_input_nodes)  # NaN
    for node in reversed(nodes):
        own = [u in inside or (u in choices and u.args[2] is not node) for u in node.users]
        if node.op == "call_function" and own and all(own) and node is not due:
            inside[node] = None
    wanted = [*inside, *choices]
    while wanted:  # a branch creates its own views, since its inputs must not share memory
        views = [x for x in wanted.pop().all_input_nodes if x not in inside and _is_view(x)]
        inside.update(dict.fromkeys(views))
        wanted += views
    ordered = [n for n in nodes if n in inside]
    needed = [x for n in (*ordered, *choices) for x in n.all_input_nodes]
    operands = list(dict.fromkeys(x for x in needed if x not in inside and x is not due))

    def branch(name: str, wanted: list[Node]) -> Node:
        made, known = Graph(), dict[Node, Node]()
        for i, x in enumerate(operands):
            known[x] = made.placeholder(f"x{i}")
        for n in ordered:
            known[n] = made.node_copy(n, known.__getitem__)
        clone = torch.ops.aten.clone.default
        made.output(tuple(made.call_function(clone, (known[x],)) for x in wanted))
        made.eliminate_dead_code()
        graph.add_submodule(name, GraphModule(graph, made))
        return graph.graph.get_attr(name)

    with graph.graph.inserting_before(choices[0]):
        taken = branch(f"{due.name}_taken", [n.args[1] for n in choices])
        left = branch(f"{due.name}_left", [n.args[2] for n in choices])
        call = due, taken, left, tuple(operands)
        both = graph.graph.call_function(torch.ops.higher_order.cond, call)
        for i, choice in enumerate(choices):
            one = graph.graph.call_function(operator.getitem, (both, i))
            one.meta.update(choice.meta)
            choice.replace_all_uses_with(one)
    graph.graph.eliminate_dead_code()
    graph.recompile()


def _is_view(node: Node) -> bool:
    """True if a node is a view of its input, or an element of a tuple of views."""
    if node.target is operator.getitem:
        return _is_view(node.args[0])
    schema = getattr(node.target, "_schema", None)
    return schema is not None and any(r.alias_info is not None for r in schema.returns)


def cond(
    backend: TorchBackend, flag: Array, update: Callable[[], dict[str, Array]]
) -> dict[str, Array]:
    """Implement `Backend.cond`: changes that are not due are undone."""
    due, work, code = flag > 0, backend.tracing, backend._code
    before, versions = [x.clone() for x in work], [x._version for x in work]
    metrics = update()
    for x, old, version in zip(work, before, versions, strict=True):
        if x._version != version:
            x.copy_(torch.where(due, x, old))
    backend._code = torch.where(due, backend._code, code)
    # a single NaN: with several, a branch would return the same tensor more than once
    none = torch.full((len(metrics),), torch.nan, device=flag.device)
    values = torch.where(due, torch.stack(list(metrics.values())), none)
    return dict(zip(metrics, values, strict=True))


# Optimizer steps in operations that the compiler can fuse, with hyperparameters as data.


def once(number: Array) -> Array:
    """Return the number, computed only once. The compiler inlines simple operations into the loop
    over the weights that use them, where a power takes longer than everything else. It does not
    inline reductions."""
    return number.expand(16).amax()


def _adam(
    inner: optimizers.TorchAdam, flat: Array, gradient: Array, state: dict[str, Array], rate: Array
) -> None:
    first, second, t = state["exp_avg"], state["exp_avg_sq"], state["step"]
    beta1, beta2 = inner.betas
    t += 1
    first.mul_(beta1).add_(gradient * (1.0 - beta1))
    second.mul_(beta2).add_(gradient * gradient * (1.0 - beta2))
    length, scale = once(rate / (1.0 - beta1**t)), once(torch.rsqrt(1.0 - beta2**t))
    if inner.decay:
        flat.mul_(1.0 - rate * inner.decay)
    change = first * length / (second.sqrt() * scale + inner.epsilon)
    if isinstance(inner, optimizers.TorchRAdam):
        last = max(1, math.ceil(-36 / math.log(beta2)))  # after it the factor is 1
        table = torch.as_tensor(rectification(np.arange(1, last + 1), beta2), device=flat.device)
        factor = once(table.take(torch.clamp(t, max=last).long() - 1))
        change = torch.where(factor > 0, factor * change, first * length)
    flat.sub_(change)


def _rmsprop(
    inner: optimizers.TorchRMSProp,
    flat: Array,
    gradient: Array,
    state: dict[str, Array],
    rate: Array,
) -> None:
    square = state["square"].mul_(inner.decay).add_(gradient * gradient * (1.0 - inner.decay))
    flat.sub_(rate * gradient / (square + inner.epsilon).sqrt())


# equivalents of each one's `move`
STEPS: dict[type, Callable[..., object]] = {
    optimizers.TorchAdam: _adam,
    optimizers.TorchRAdam: _adam,
    optimizers.TorchRMSProp: _rmsprop,
    optimizers.TorchSGD: lambda _, flat, g, state, rate: flat.sub_(rate * g),
    optimizers.TorchRecorder: lambda _, flat, g, state, rate: state["gradient"].copy_(g),
}
