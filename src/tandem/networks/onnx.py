"""Plans as ONNX graphs, built node by node with only the package onnx, without a framework."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from tandem.errors import NetworkError, needs
from tandem.math.action_values import CategoricalValues, ImplicitValues, QuantileValues
from tandem.math.distributions import Beta, Distribution, TanhGaussian
from tandem.math.masks import FORBIDDEN
from tandem.networks.onnx_layers import LAYERS
from tandem.networks.plan import Plan, Weights, select
from tandem.spaces import Leaf, Spec
from tandem.types import Array, Tree

if TYPE_CHECKING:
    from numpy.typing import DTypeLike
    from onnx import ModelProto, NodeProto, TensorProto

OPSET = 17  # from 2022, supported by all recent runtimes
SIMPLE = {
    "tanh": "Tanh",
    "relu": "Relu",
    "sigmoid": "Sigmoid",
    "softplus": "Softplus",
    "elu": "Elu",
}


def entries(tree: Tree, name: str = "") -> dict[str, Tree]:
    """Return the leaves of a network's inputs: as "obs" if there are no entries, else by name, with
    nested names joined by dots."""
    if not isinstance(tree, dict):
        return {name or "obs": tree}
    within = (entries(x, f"{name}.{n}" if name else n) for n, x in tree.items())
    return {n: leaf for part in within for n, leaf in part.items()}


class Graph:
    """A graph under construction. All methods take and return names of values."""

    def __init__(self) -> None:
        with needs("onnx", "to export networks", "pip install 'tandem-rl[onnx]'"):
            from onnx import TensorProto, helper, numpy_helper
        self.helper, self.numpy_helper, self.types = helper, numpy_helper, TensorProto
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []

    def __call__(self, kind: str, *inputs: str, **attributes: object) -> str:
        """Add a node with one output."""
        name = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(self.helper.make_node(kind, inputs, [name], **attributes))
        return name

    def constant(self, value: Array, dtype: type[np.generic] = np.float32) -> str:
        name = f"constant_{len(self.constants)}"
        self.constants.append(self.numpy_helper.from_array(np.array(value, dtype), name))
        return name

    def plan(self, plan: Plan, weights: Weights, x: Array) -> str:
        """Return a plan's output for the value x, or for a dict of values if it starts with
        Branches."""
        for i, layer in enumerate(plan):
            build = LAYERS.get(type(layer))
            if build is None:
                raise NetworkError(
                    f"the layer {type(layer).__name__} cannot be exported to ONNX.",
                    f"a network of {', '.join(sorted(k.__name__ for k in LAYERS))}",
                    "export it to numpy instead.",
                )
            x = build(self, layer, select(weights, str(i)), x)
        return str(x)

    def merge(self, model: bytes, inputs: dict[str, str]) -> str:
        """Add the nodes and constants of a complete model. `inputs` maps the model's input names to
        values of this graph. Return its output."""
        from onnx import compose, inliner, load_model_from_string

        whole = load_model_from_string(model)
        if whole.functions:
            whole = inliner.inline_local_functions(whole)
        foreign = {node.domain for node in whole.graph.node} - {"", "ai.onnx"}
        opset = {o.domain: o.version for o in whole.opset_import}.get("", OPSET)
        if foreign or opset > OPSET:
            raise NetworkError(
                f"the network's exporter wrote operations of {', '.join(foreign) or opset}.",
                f"operations of ONNX opset {OPSET}",
                "use tandem.load for deployment.",
            )
        graph = compose.add_prefix(whole, "network/").graph
        constants = {constant.name for constant in graph.initializer}
        for value in graph.input:
            if value.name not in constants:  # cast to the exporter's type
                given = inputs[value.name.removeprefix("network/")]
                kind = value.type.tensor_type.elem_type
                self.nodes.append(self.helper.make_node("Cast", [given], [value.name], to=kind))
        self.nodes += graph.node
        self.constants += graph.initializer
        return str(graph.output[0].name)

    def activate(self, name: str, x: str) -> str:
        if name == "linear":
            return x
        if name == "silu":
            return self("Mul", x, self("Sigmoid", x))
        if name == "gelu":  # x * (1 + erf(x / sqrt(2))) / 2
            twice = self(
                "Add", self("Erf", self("Mul", x, self.constant(0.5**0.5))), self.constant(1.0)
            )
            return self("Mul", self("Mul", x, self.constant(0.5)), twice)
        return self(SIMPLE[name], x)

    def reshape(self, x: str, shape: tuple[int, ...]) -> str:
        return self("Reshape", x, self.constant(shape, np.int64))

    def columns(self, x: str, start: int, end: int) -> str:
        """Return x[:, start:end]."""
        return self("Slice", x, *(self.constant([v], np.int64) for v in (start, end, 1)))

    def masked(self, x: str, mask: str) -> str:
        """Replace x by FORBIDDEN where the input `mask` is 0."""
        return self("Where", self("Cast", mask, to=self.types.BOOL), x, self.constant(FORBIDDEN))

    def float32(self, x: str) -> str:
        return self("Cast", x, to=self.types.FLOAT)

    def model(
        self, inputs: Spec, outputs: dict[str, tuple[str, DTypeLike, list[int]]]
    ) -> ModelProto:
        """Return the finished model. outputs: name -> (value, NumPy dtype, shape)."""
        leaves = inputs if isinstance(inputs, dict) else {"obs": inputs}
        of = self.helper.np_dtype_to_tensor_dtype
        enter = [
            self.helper.make_tensor_value_info(
                name, of(np.dtype(leaf.dtype)), ["batch", *leaf.shape]
            )
            for name, leaf in leaves.items()
        ]
        leave = []
        for name, (value, dtype, shape) in outputs.items():
            self.nodes.append(self.helper.make_node("Identity", [value], [name]))
            leave.append(
                self.helper.make_tensor_value_info(name, of(np.dtype(dtype)), ["batch", *shape])
            )
        graph = self.helper.make_graph(self.nodes, "agent", enter, leave, self.constants)
        opset = [self.helper.make_opsetid("", OPSET)]
        return self.helper.make_model(
            graph, opset_imports=opset, producer_name="tandem", ir_version=8
        )


def values(g: Graph, out: str, policy: Distribution) -> str:
    """Return the values of choices from a network's output, which may be distributions."""
    if isinstance(policy, CategoricalValues):
        spread = g("Softmax", g.reshape(out, (-1, policy.n, policy.each)), axis=-1)
        means = g("Mul", spread, g.constant(policy.support))
        return g("ReduceSum", means, g.constant([-1], np.int64), keepdims=0)
    if isinstance(policy, QuantileValues):
        spread = g.reshape(out, (-1, policy.n, policy.each))
        return g("ReduceMean", spread, axes=[-1], keepdims=0)
    if isinstance(policy, ImplicitValues):
        return g("ReduceMean", out, axes=[1], keepdims=0)
    return out


def deterministic(g: Graph, out: str, action: Leaf, policy: Distribution) -> str:
    """Return the mode of `policy` for a network's output, in the form of the environment's actions:
    the most likely choices, or the mean, rescaled from [-1, 1] to the bounds if the policy acts
    that way, and clipped to the bounds. Further outputs, such as a spread or values, are
    ignored."""
    if action.kind == "discrete":
        best = g("ArgMax", g.columns(out, 0, action.sizes[0]), axis=-1, keepdims=0)
        return g("Add", best, g.constant(action.start, np.int64))
    if action.kind == "multidiscrete":
        ends = np.cumsum((0, *action.sizes))
        choices = [
            g("ArgMax", g.columns(out, a, b), axis=-1, keepdims=1) for a, b in pairwise(ends)
        ]
        return g("Concat", *choices, axis=-1)
    if action.parts:
        raise NetworkError(
            "a Dict or Tuple of actions cannot be exported to ONNX.",
            "one array of actions",
            "export it to numpy instead.",
        )
    if action.kind == "multibinary":
        best = g("Greater", g.columns(out, 0, action.width), g.constant(0.0))
        return g("Cast", best, to=g.types.INT8)
    mean, half = g.columns(out, 0, action.width), action.width
    if isinstance(policy, Beta):
        a, b = (
            g("Add", g("Softplus", x), g.constant(1.0))
            for x in (mean, g.columns(out, half, 2 * half))
        )
        mean = g("Div", g("Sub", a, b), g("Add", a, b))
    low, high = (np.ravel(bound).astype(np.float32) for bound in action.bounds)
    if isinstance(policy, TanhGaussian):
        mean = g("Tanh", mean)
    if policy.action_mode == "unit":
        mean = g("Add", g("Mul", mean, g.constant((high - low) / 2)), g.constant((low + high) / 2))
    return g("Min", g("Max", mean, g.constant(low)), g.constant(high))


def run(model: ModelProto, inputs: dict[str, Array]) -> dict[str, Array] | None:
    """Return the outputs of a model in onnxruntime, or None if it is not installed."""
    try:
        import onnxruntime
    except ImportError:
        return None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))
