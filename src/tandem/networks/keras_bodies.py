"""Keras models that users make: recognised where their layers are known, and completed with our
heads."""

from __future__ import annotations

import random
from typing import Any

import keras
import numpy as np

from tandem.errors import NetworkError
from tandem.networks import plan as p
from tandem.networks.defaults import Given, apart, example, fit, vector, whole_streams
from tandem.networks.keras_layers import (
    Cell,
    CombineDueling,
    build,
    chained,
    functional,
    symbolic,
    write,
)
from tandem.networks.plan import Plan, init
from tandem.networks.recurrent import GRU, Recurrent
from tandem.types import Array, tree_map

ops = keras.ops


def recognise(model: Any, features: int) -> tuple[Plan, dict[str, Any]] | None:
    """The plan of a user's model that is a chain of known layers on `features` numbers, and its
    variables by the plan's names; None where it is anything else."""
    if not isinstance(model, keras.Model) or not model.built or not (layers := _in_a_row(model)):
        return None
    plan: list[p.Layer] = []
    variables: dict[str, Any] = {}
    for layer in layers:
        if layer.compute_dtype != "float32" or layer.variable_dtype != "float32":
            return None
        if (
            type(layer) is keras.layers.Dense
            and layer.use_bias
            and _activation(layer) in p.ACTIVATIONS
        ):
            variables |= {f"{len(plan)}/kernel": layer.kernel, f"{len(plan)}/bias": layer.bias}
            plan.append(p.Dense(features, layer.units, _activation(layer)))
            features = layer.units
        elif type(layer) is keras.layers.LayerNormalization and _plain_norm(layer):
            variables |= {f"{len(plan)}/scale": layer.gamma, f"{len(plan)}/bias": layer.beta}
            plan.append(p.LayerNorm(features, layer.epsilon))
        elif type(layer) is keras.layers.Activation and _activation(layer) in p.ACTIVATIONS:
            plan.append(p.Activation(_activation(layer)))
        elif type(layer) is keras.layers.ReLU and (
            layer.max_value,
            layer.negative_slope,
            layer.threshold,
        ) == (None, 0, 0):
            plan.append(p.Activation("relu"))
        else:
            return None
    return (tuple(plan), variables) if any(isinstance(layer, p.Dense) for layer in plan) else None


def _in_a_row(model: Any) -> list[Any]:
    """The layers of a model that calls one after the other, each once; none where it does
    otherwise."""
    if type(model) is keras.Sequential:
        return list(model.layers)
    if type(model).__name__ != "Functional" or len(model.inputs) != 1 or len(model.outputs) != 1:
        return []
    x, layers = model.inputs[0], []
    for layer in model.layers[1:]:
        if len(layer._inbound_nodes) != 1 or layer.input is not x:
            return []
        x = layer.output
        layers.append(layer)
    return layers if x is model.outputs[0] else []


def _activation(layer: Any) -> str:
    """The name of a layer's activation if it is Keras's own of that name, else nothing."""
    name = getattr(layer.activation, "__name__", "")
    return name if getattr(keras.activations, name, None) is layer.activation else ""


def _plain_norm(layer: Any) -> bool:
    return bool(
        layer.axis in (-1, [-1], 1, [1])
        and layer.scale
        and layer.center
        and not layer.get_config().get("rms_scaling")
    )


class OnFeatures(keras.Model):
    """The user's body, and our head on its features beside the action."""

    def __init__(self, body: Any, head: Any) -> None:
        # TensorFlow takes no name that begins with an underscore
        super().__init__(name="on_features")
        self.body, self.head = body, head

    def call(self, x: Array, training: bool | None = None) -> Any:
        return self.head(ops.concatenate([self.body(x["obs"], training=training), x["action"]], -1))


class Remembering(keras.Model):
    """The user's body, our GRU on its features, and our head on its states."""

    def __init__(self, body: Any, cell: Any, head: Any) -> None:
        super().__init__(name="remembering")
        self.body, self.cell, self.head = body, cell, head

    def call(self, x: Array, training: bool | None = None) -> Any:
        features = self.body(x["obs"], training=training)
        states = self.cell({"x": features, "state": x["state"], "start": x["start"]})
        return ops.concatenate([self.head(states), states], -1)


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
    if not source.head:
        return (network, *(known or (None, {})))
    if source.units:
        return _with_memory(source, network, out, known)
    width = out + (source.inputs["action"].width if source.with_action else 0)
    head_plan = fit(source.head, width)
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
    out = source.features(
        name, lambda: body(zeros["obs"] if source.head and source.beside else zeros)
    )
    seen = source.inputs["obs"] if source.units else source.inputs
    return int(out.shape[1]), recognise(body, seen.shape[0]) if vector(seen) else None


def _with_memory(
    source: Given, body: Any, features: int, known: tuple[Plan, dict[str, Any]] | None
) -> tuple[Any, Plan | None, dict[str, Any]]:
    """Our GRU on the features, and our head on its states."""
    cell, head_plan = GRU(features, source.units), fit(source.head, source.units)
    head, variables = build(head_plan, keras.Input((source.units,)))
    rng, gru = np.random.default_rng(source.seed), Cell(cell)
    gru.build({"x": (None, features), "state": (None, source.units), "start": (None,)})
    write(gru.named, cell.init(rng))
    write(variables, init(head_plan, rng))
    model = Remembering(body, gru, head)
    model(tree_map(ops.convert_to_tensor, example(source.inputs)))
    if known is None:
        return model, None, variables
    plan, named = known
    parts = {"body": named, "cell": gru.named, "head": variables}
    named_weights = {f"0/{part}/{n}": v for part, inner in parts.items() for n, v in inner.items()}
    return model, (Recurrent(plan, features, source.units, head_plan),), named_weights


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
            plans.append(known[0])
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
