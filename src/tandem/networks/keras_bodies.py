"""Keras models that users make, completed with our heads."""

from __future__ import annotations

import random
from typing import Any

import keras
import numpy as np

from tandem.errors import NetworkError, brief
from tandem.networks import plan as p
from tandem.networks.defaults import Given, apart, example, fit, remembering, whole_streams
from tandem.networks.implicit import quantile_network
from tandem.networks.keras_known import recognise
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
from tandem.networks.plan import Plan, init
from tandem.networks.recurrent import beside
from tandem.networks.users import refuse_precision
from tandem.spaces import Leaf
from tandem.types import Array, tree_map

ops = keras.ops


class OnFeatures(keras.Model):
    """The user's body, and our head on its features beside the action."""

    def __init__(self, body: Any, head: Any) -> None:
        # TensorFlow takes no name that begins with an underscore
        super().__init__(name="on_features")
        self.body, self.head = body, head

    def call(self, x: Array, training: bool | None = None) -> Any:
        return self.head(ops.concatenate([self.body(x["obs"], training=training), x["action"]], -1))


class Remembering(keras.Model):
    """The user's body, our memory of its features, and our head on its states."""

    def __init__(self, body: Any, cell: Any, head: Any) -> None:
        super().__init__(name="remembering")
        self.body, self.cell, self.head = body, cell, head

    def call(self, x: Array, training: bool | None = None) -> Any:
        features = self.body(x["obs"], training=training)
        states = self.cell({"x": features, "state": x["state"], "start": x["start"]})
        return ops.concatenate([self.head(beside(states, x, self.cell.layer.units)), states], -1)


def given(name: str, source: Given) -> tuple[Any, Plan | None, dict[str, Any]]:
    """The network of a role that stands on what the user makes: (model, its plan where all its
    layers are known, its variables by the plan's names, else those of the head by the head's)."""
    state = random.getstate()
    random.seed(source.seed)  # Keras draws the seeds of its initialisers from Python's generator
    try:
        return _given(name, source)
    finally:
        random.setstate(state)


def _given(name: str, source: Given) -> tuple[Any, Plan | None, dict[str, Any]]:
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
    model = OnFeatures(network, head) if source.with_action else keras.Sequential([network, head])
    model(tree_map(ops.convert_to_tensor, example(source.inputs)))
    if known is None or source.with_action:
        return model, None, variables
    plan, named = known
    return model, plan + head_plan, named | _shifted(variables, len(plan))


def _looked_at(
    name: str, source: Given, body: Any
) -> tuple[int, tuple[Plan, dict[str, Any]] | None]:
    """How many numbers a model puts out, and its plan and variables if they are known."""
    if not isinstance(body, keras.layers.Layer):
        raise NetworkError(
            f"network= gave a {type(body).__name__} for {name!r}.",
            f"a Keras model, since the framework is Keras on {keras.backend.backend()}",
            "return a model, or choose the framework your network is made with.",
        )
    zeros = tree_map(ops.convert_to_tensor, example(source.inputs))
    x = zeros["obs"] if source.head and source.beside else zeros
    out = source.features(name, lambda: body(x))
    try:
        trace(body, x)
    except Exception as error:  # each engine has its own, and Keras rewrites them
        cause: BaseException = error
        while cause.__context__ is not None:
            cause = cause.__context__
        raise NetworkError(
            f"{keras.backend.backend()} cannot compile the network given for {name!r}: "
            f"{brief(cause)}",
            fix="replace Python's if, float and NumPy on its values by keras.ops.where and the "
            "like.",
        ) from error
    if body.losses:
        raise NetworkError(
            f"network= gave a model for {name!r} that has regularizers, or losses of its own.",
            "a model without: the algorithm's loss alone is what it learns by",
            "leave kernel_regularizer, activity_regularizer and add_loss out; weight_decay is the "
            "setting that makes weights smaller.",
        )
    for v in body.trainable_variables:
        refuse_precision(name, "weights", v.dtype, "make its layers with dtype='float32'.")
    fix = "make its last layer with dtype='float32'."
    refuse_precision(name, "outputs", keras.backend.standardize_dtype(out.dtype), fix)
    seen = source.inputs["obs"] if source.units or source.cosines else source.inputs
    return int(out.shape[1]), recognise(body, seen) if isinstance(seen, Leaf) else None


def _with_fractions(
    source: Given, body: Any, features: int, known: tuple[Plan, dict[str, Any]] | None
) -> tuple[Any, Plan | None, dict[str, Any]]:
    """The fractions' embedding times the features, and our head on them."""
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
    source: Given, body: Any, features: int, known: tuple[Plan, dict[str, Any]] | None
) -> tuple[Any, Plan | None, dict[str, Any]]:
    """Our memory of the features, and our head on its states."""
    layer = remembering(source, () if known is None else known[0], features)
    head, variables = build(layer.head, keras.Input((layer.seen,)))
    rng, cell = np.random.default_rng(source.seed), Cell(layer.cell)
    cell.build({"x": (None, features), "state": (None, layer.cell.size), "start": (None,)})
    write(cell.named, layer.cell.init(rng))
    write(variables, init(layer.head, rng))
    model = Remembering(body, cell, head)
    model(tree_map(ops.convert_to_tensor, example(source.inputs)))
    if known is None:
        return model, None, variables
    parts = {"body": known[1], "cell": cell.named, "head": variables}
    named_weights = {f"0/{part}/{n}": v for part, inner in parts.items() for n, v in inner.items()}
    return model, (layer,), named_weights


def _apart(
    name: str, source: Given, bodies: tuple[Any, ...]
) -> tuple[Any, Plan | None, dict[str, Any]]:
    """Each stream of the head on a body of its own."""
    inputs, outs, plans = symbolic(source.inputs), [], []
    variables: dict[str, Any] = {}
    own: dict[str, Any] = {}
    for i, (body, (stream, head)) in enumerate(
        zip(bodies, whole_streams(source.head).items(), strict=True)
    ):
        width, known = _looked_at(name, source, body)
        own_variables: dict[str, Any] = {}
        outs.append(chained(fit(head, width), body(inputs), "", own_variables))
        own_variables = {n: get() for n, get in own_variables.items()}
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


def _shifted(variables: dict[str, Any], places: int) -> dict[str, Any]:
    """Variables by the names they have `places` layers further on."""
    return {
        f"{int(n.split('/', 1)[0]) + places}/{n.split('/', 1)[1]}": v for n, v in variables.items()
    }
