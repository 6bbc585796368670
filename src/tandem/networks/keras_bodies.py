"""Custom Keras models completed with tandem's heads. Models that are chains of a plan's layers are
recognized."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import layers

from tandem.errors import NetworkError, brief
from tandem.networks import plan as p
from tandem.networks.defaults import (
    CustomNetwork,
    apart,
    example,
    fit,
    recurrent_layer,
    whole_streams,
)
from tandem.networks.implicit import quantile_network
from tandem.networks.keras_layers import (
    Cell,
    CombineDueling,
    build,
    chained,
    functional,
    symbolic,
    trace,
    write,
)
from tandem.networks.plan import Layer, Plan, init
from tandem.networks.recurrent import beside
from tandem.networks.users import refuse_precision
from tandem.spaces import Leaf
from tandem.types import Array, Variable, tree_map

ops = keras.ops
Variables = dict[str, Variable]  # by name
Known = list[tuple[Layer, Variables]] | None  # layers, each with its variables
Recognized = tuple[Plan, Variables]
Completed = tuple[keras.Model, Plan | None, Variables]


class KerasFeatureCritic(keras.Model):
    """A custom feature extractor, and tandem's head on its features and the action."""

    def __init__(self, body: keras.Layer, head: keras.Model) -> None:
        # TensorFlow rejects names with a leading underscore
        super().__init__(name="on_features")
        self.body, self.head = body, head

    def call(self, x: Array, training: bool | None = None) -> Array:
        return self.head(ops.concatenate([self.body(x["obs"], training=training), x["action"]], -1))


class KerasRecurrent(keras.Model):
    """A custom feature extractor, tandem's recurrent layer on its features, and tandem's head on
    the states."""

    def __init__(self, body: keras.Layer, cell: Cell, head: keras.Model) -> None:
        super().__init__(name="remembering")
        self.body, self.cell, self.head = body, cell, head

    def call(self, x: Array, training: bool | None = None) -> Array:
        features = self.body(x["obs"], training=training)
        states = self.cell({"x": features, "state": x["state"], "start": x["start"]})
        return ops.concatenate([self.head(beside(states, x, self.cell.layer.units)), states], -1)


def given(name: str, source: CustomNetwork) -> Completed:
    """Return a role's network based on the user's model: (model, its plan if all layers are known,
    its variables by the plan's names, or else the head's variables by the head's names)."""
    state = random.getstate()
    random.seed(source.seed)  # Keras samples initializer seeds from Python's generator
    try:
        return _given(name, source)
    finally:
        random.setstate(state)


def _given(name: str, source: CustomNetwork) -> Completed:
    network = source.make()
    if isinstance(network, tuple):
        return _apart(name, source, network)
    out, known = _looked_at(name, source, network)
    if not source.head and not source.tail:
        return (network, *(known or (None, {})))
    if source.units:
        return _with_memory(source, network, out, known)
    if source.cosines:
        return _with_fractions(source, network, out, known)
    width = out + (source.inputs["action"].width if source.with_action else 0)
    head_plan = fit(source.head or source.tail, width)
    head, variables = build(head_plan, keras.Input((width,)))
    write(variables, init(head_plan, np.random.default_rng(source.seed)))
    model = (
        KerasFeatureCritic(network, head)
        if source.with_action
        else keras.Sequential([network, head])
    )
    model(tree_map(ops.convert_to_tensor, example(source.inputs)))
    if known is None or source.with_action:
        return model, None, variables
    plan, named = known
    return model, plan + head_plan, named | _shifted(variables, len(plan))


def _looked_at(
    name: str, source: CustomNetwork, body: keras.Layer
) -> tuple[int, Recognized | None]:
    """Check a model. Return its number of outputs, and its plan and variables if they are known."""
    if not isinstance(body, keras.layers.Layer):
        raise NetworkError(
            f"network= returned a {type(body).__name__} for {name!r}.",
            f"a Keras model, since the framework is Keras on {keras.backend.backend()}",
            "return a model, or choose your network's framework.",
        )
    zeros = tree_map(ops.convert_to_tensor, example(source.inputs))
    x = zeros["obs"] if source.head and source.beside else zeros
    out = source.features(name, lambda: body(x))
    try:
        trace(body, x)
    except Exception as error:  # each backend raises its own type, which Keras rewrites
        cause: BaseException = error
        while cause.__context__ is not None:
            cause = cause.__context__
        raise NetworkError(
            f"{keras.backend.backend()} cannot compile the network given for {name!r}: "
            f"{brief(cause)}",
            fix="replace Python's if, float and NumPy on its values by keras.ops.where and "
            "similar functions.",
        ) from error
    if body.losses:
        raise NetworkError(
            f"network= returned a model for {name!r} with regularizers or added losses.",
            "a model without them, trained by the algorithm's loss alone",
            "leave kernel_regularizer, activity_regularizer and add_loss out; set weight_decay to "
            "shrink weights.",
        )
    for v in body.trainable_variables:
        refuse_precision(name, "weights", v.dtype, "make its layers with dtype='float32'.")
    fix = "make its last layer with dtype='float32'."
    refuse_precision(name, "outputs", keras.backend.standardize_dtype(out.dtype), fix)
    seen = source.inputs["obs"] if source.units or source.cosines else source.inputs
    return int(out.shape[1]), recognize(body, seen) if isinstance(seen, Leaf) else None


def _with_fractions(
    source: CustomNetwork, body: keras.Layer, features: int, known: Recognized | None
) -> Completed:
    """Multiply the features by the fractions' embedding, and add tandem's head."""
    head = fit(source.head, features)
    rest = quantile_network((), features, source.cosines, head)
    entering = {"obs": keras.Input((features,)), "fractions": keras.Input((None,))}
    quantiles, variables = build(rest, entering)
    write(variables, init(rest, np.random.default_rng(source.seed)))
    inputs = symbolic(source.inputs)
    model = functional(inputs, quantiles({**inputs, "obs": body(inputs["obs"])}))
    if known is None:
        return model, None, variables
    plan, named = known
    weights = {f"0/obs/{n}": v for n, v in named.items()} | variables
    return model, quantile_network(plan, features, source.cosines, head), weights


def _with_memory(
    source: CustomNetwork, body: keras.Layer, features: int, known: Recognized | None
) -> Completed:
    """Add tandem's recurrent layer to the features, and tandem's head to its states."""
    layer = recurrent_layer(source, () if known is None else known[0], features)
    head, variables = build(layer.head, keras.Input((layer.seen,)))
    rng, cell = np.random.default_rng(source.seed), Cell(layer.cell)
    cell.build({"x": (None, features), "state": (None, layer.cell.size), "start": (None,)})
    write(cell.named, layer.cell.init(rng))
    write(variables, init(layer.head, rng))
    model = KerasRecurrent(body, cell, head)
    model(tree_map(ops.convert_to_tensor, example(source.inputs)))
    if known is None:
        return model, None, variables
    parts = {"body": known[1], "cell": cell.named, "head": variables}
    named_weights = {f"0/{part}/{n}": v for part, inner in parts.items() for n, v in inner.items()}
    return model, (layer,), named_weights


def _apart(name: str, source: CustomNetwork, bodies: tuple[keras.Layer, ...]) -> Completed:
    """Give each stream of the head its own feature extractor."""
    inputs, outs, plans = symbolic(source.inputs), [], []
    variables: Variables = {}
    own: Variables = {}
    for i, (body, (stream, head)) in enumerate(
        zip(bodies, whole_streams(source.head).items(), strict=True)
    ):
        width, known = _looked_at(name, source, body)
        getters: dict[str, Callable[[], Variable]] = {}
        outs.append(chained(fit(head, width), body(inputs), "", getters))
        own_variables = {n: get() for n, get in getters.items()}
        write(own_variables, init(fit(head, width), np.random.default_rng(source.seed + i)))
        own |= {f"{stream}/{n}": v for n, v in own_variables.items()}
        if known is not None:
            plans.append((known[0], width))
            variables |= {
                f"0/{stream}/{n}": v
                for n, v in (known[1] | _shifted(own_variables, len(known[0]))).items()
            }
    joined = (
        CombineDueling()(outs)
        if isinstance(source.head[0], p.Dueling)
        else keras.layers.Concatenate()(outs)
    )
    model = functional(inputs, joined)
    return (
        (model, apart(tuple(plans), source.head), variables)
        if len(plans) == len(bodies)
        else (model, None, own)
    )


def _shifted(variables: Variables, places: int) -> Variables:
    """Return the variables with names shifted by `places` layers."""
    return {
        f"{int(n.split('/', 1)[0]) + places}/{n.split('/', 1)[1]}": v for n, v in variables.items()
    }


def recognize(model: keras.Layer, entering: Leaf) -> Recognized | None:
    """Return the plan of a custom model that is a chain of a plan's layers on such observations,
    and its variables by the plan's names; None for any other model, and for one without
    variables."""
    if not isinstance(model, keras.Model) or not model.built or not (row := chain(model)):
        return None
    parts = [_entrance(model.inputs[0], row[0], entering), *map(known, row)]
    if any(part is None for part in parts):
        return None
    found = [layer for part in parts for layer in part or ()]
    variables = {f"{i}/{n}": v for i, (_, own) in enumerate(found) for n, v in own.items()}
    return (tuple(layer for layer, _ in found), variables) if variables else None


def chain(model: keras.Model) -> list[keras.Layer]:
    """Return the layers that a model calls in sequence, each once, including those of nested
    models; [] if it calls them in another way."""
    found = []
    for layer in _in_a_row(model):
        inner = chain(layer) if isinstance(layer, keras.Model) else [layer]
        if not inner:
            return []
        found += inner
    return found


def _in_a_row(model: keras.Model) -> list[keras.Layer]:
    if type(model) is keras.Sequential:
        return list(model.layers)
    if type(model).__name__ != "Functional" or len(model.inputs) != 1 or len(model.outputs) != 1:
        return []
    x, found = model.inputs[0], []
    for layer in model.layers[1:]:
        if len(layer._inbound_nodes) != 1:
            return []
        (call,) = layer._inbound_nodes
        if len(call.input_tensors) != 1 or call.input_tensors[0] is not x or len(call.outputs) != 1:
            return []
        x = call.outputs[0]
        found.append(layer)
    return found if x is model.outputs[0] else []


def _entrance(symbolic: Array, first: keras.Layer, entering: Leaf) -> Known:
    """Return the plan's layers for conversions of observations before a model's first layer:
    integers become float32."""
    wanted = tuple(symbolic.shape[1:])
    if entering.dtype == "float32" or type(first) is layers.Rescaling:
        return [] if wanted == entering.shape else None
    flat = wanted == (entering.shape or (1,)) and len(wanted) == 1
    return [(p.Cast(wanted[0]), {})] if flat and symbolic.dtype == "float32" else None


def known(layer: keras.Layer) -> Known:
    """Return the plan's layers equivalent to this one, or None."""
    if layer.compute_dtype != "float32" or layer.variable_dtype != "float32":
        return None
    kind = type(layer)
    if kind is layers.LayerNormalization:
        plain = layer.axis in (-1, [-1]) and layer.scale and layer.center
        if not plain or layer.get_config().get("rms_scaling"):
            return None
        weights = {"scale": layer.gamma, "bias": layer.beta}
        return [(p.LayerNorm(layer.gamma.shape[0], layer.epsilon), weights)]
    if kind in (layers.Dense, layers.Conv2D):
        return _with_weights(layer)
    if kind is layers.Activation:
        name = _activation(layer)
        return [(p.Activation(name), {})] if name else None
    if kind in PLAIN:
        wanted, made = PLAIN[kind]
        plain = all(np.array_equal(getattr(layer, n), x) for n, x in wanted.items())
        return [(made, {})] if plain else None
    return None


# layers without weights: the required options, and the equivalent plan layer
PLAIN: dict[type, tuple[dict[str, Any], Layer]] = {
    layers.Identity: ({}, p.Activation("linear")),
    layers.ReLU: (
        {"negative_slope": 0.0, "max_value": None, "threshold": 0.0},
        p.Activation("relu"),
    ),
    layers.ELU: ({"alpha": 1.0}, p.Activation("elu")),
    layers.Flatten: ({"data_format": "channels_last"}, p.Flatten()),
    layers.Rescaling: ({"scale": 1 / 255, "offset": 0.0}, p.Image(False)),
}


def _activation(layer: keras.Layer) -> str:
    """Return the name of a layer's activation if it is Keras's own and plans support it, else
    ""."""
    name = getattr(layer.activation, "__name__", "")
    own = getattr(keras.activations, name, None) is layer.activation
    return name if own and name in p.ACTIVATIONS else ""


def _with_weights(layer: keras.Layer) -> Known:
    name = _activation(layer)
    if not name or not layer.use_bias or not isinstance(layer.kernel, keras.Variable):
        return None
    weights = {"kernel": layer.kernel, "bias": layer.bias}
    *sides, inputs, units = layer.kernel.shape
    if not sides:
        return [(p.Dense(inputs, units, name), weights)]
    form = {*layer.kernel_size}, {*layer.strides}
    plain = layer.padding == "valid" and layer.groups == 1 and {*layer.dilation_rate} == {1}
    if not plain or any(len(x) > 1 for x in form) or layer.data_format != "channels_last":
        return None
    (kernel,), (stride,) = form
    made = p.Conv(inputs, units, kernel, stride, "linear")
    return [(made, weights), (p.Activation(name), {})]
