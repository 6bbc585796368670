"""Plans as Keras models, and the other way: weights out and in, and models of known layers recognised."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import keras
import numpy as np

from tandem.errors import NetworkError
from tandem.networks import noisy
from tandem.networks import plan as p
from tandem.networks.defaults import Given, apart, example, fit, vector, whole_streams
from tandem.networks.plan import Plan, Weights, init
from tandem.types import Tree, tree_map

ops = keras.ops


@keras.saving.register_keras_serializable("tandem")
class OneHot(keras.layers.Layer):
    """Discrete observations as concatenated one-hot vectors."""

    def __init__(self, sizes: tuple[int, ...], start: int = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.sizes, self.start = tuple(sizes), start

    def call(self, x: Any) -> Any:
        return p.OneHot(self.sizes, self.start).forward({}, x)

    def compute_output_shape(self, shape: Any) -> Any:
        return (shape[0], sum(self.sizes))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "sizes": self.sizes, "start": self.start}


@keras.saving.register_keras_serializable("tandem")
class Cast(keras.layers.Layer):
    """Numbers of any kind and shape as float32 vectors."""

    def __init__(self, width: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.width = width

    def call(self, x: Any) -> Any:
        return ops.reshape(ops.cast(x, "float32"), (-1, self.width))

    def compute_output_shape(self, shape: Any) -> Any:
        return (shape[0], self.width)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "width": self.width}


@keras.saving.register_keras_serializable("tandem")
class Image(keras.layers.Layer):
    """Bytes to [0, 1], channels last."""

    def __init__(self, channels_first: bool, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.channels_first = channels_first

    def call(self, x: Any) -> Any:
        x = ops.cast(x, "float32") * (1 / 255)
        return ops.transpose(x, (0, 2, 3, 1)) if self.channels_first else x

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "channels_first": self.channels_first}


@keras.saving.register_keras_serializable("tandem")
class Normalize(keras.layers.Layer):
    """Standardised by running statistics that are set from outside, then clipped."""

    def __init__(self, width: int, clip: float = 10.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.width, self.clip = width, clip

    def build(self, shape: Any) -> None:
        self.mean = self.add_weight(shape=(self.width,), initializer="zeros", trainable=False, name="mean")
        self.variance = self.add_weight(shape=(self.width,), initializer="ones", trainable=False, name="variance")

    def call(self, x: Any) -> Any:
        return ops.clip((x - self.mean) / ops.sqrt(self.variance + 1e-8), -self.clip, self.clip)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "width": self.width, "clip": self.clip}


@keras.saving.register_keras_serializable("tandem")
class NoisyDense(keras.layers.Layer):
    """A Dense layer with noise on its weights, which is set from outside."""

    def __init__(self, inputs: int, units: int, activation: str = "linear", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.inputs, self.units, self.activation = inputs, units, activation

    def build(self, shape: Any) -> None:
        for kind, inner in (("kernel", (self.inputs, self.units)), ("bias", (self.units,))):
            for name in (kind, f"{kind}_sigma", f"{kind}_noise"):
                trained = name not in noisy.NoisyDense.frozen
                setattr(self, name, self.add_weight(shape=inner, initializer="zeros", trainable=trained, name=name))

    def call(self, x: Any) -> Any:
        layer = noisy.NoisyDense(self.inputs, self.units, self.activation)
        return layer.forward({v.name: v.value for v in self.variables}, x)

    def compute_output_shape(self, shape: Any) -> Any:
        return (*shape[:-1], self.units)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "inputs": self.inputs, "units": self.units, "activation": self.activation}


@keras.saving.register_keras_serializable("tandem")
class Scale(keras.layers.Layer):
    """Output beside learned log standard deviations."""

    def __init__(self, width: int, initial: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.width, self.initial = width, initial

    def build(self, shape: Any) -> None:
        constant = keras.initializers.Constant(self.initial)
        self.log_std = self.add_weight(shape=(self.width,), initializer=constant, name="log_std")

    def call(self, x: Any) -> Any:
        return ops.concatenate([x, 0.0 * x + self.log_std], -1)

    def compute_output_shape(self, shape: Any) -> Any:
        return (*shape[:-1], 2 * self.width)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "width": self.width, "initial": self.initial}


@keras.saving.register_keras_serializable("tandem")
class Half(keras.layers.Layer):
    """The first or the second half of each vector."""

    def __init__(self, inputs: int, second: bool, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.half = p.Half(inputs, second)

    def call(self, x: Any) -> Any:
        return self.half.forward({}, x)

    def compute_output_shape(self, shape: Any) -> Any:
        return (*shape[:-1], p.width((self.half,)))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "inputs": self.half.inputs, "second": self.half.second}


@keras.saving.register_keras_serializable("tandem")
class CombineDueling(keras.layers.Layer):
    """V + A - mean(A)."""

    def call(self, streams: Any) -> Any:
        value, advantage = streams
        return value + advantage - ops.mean(advantage, -1, keepdims=True)

    def compute_output_shape(self, shapes: Any) -> Any:
        return shapes[1]


def build(plan: Plan, inputs: Any) -> tuple[keras.Model, dict[str, Any]]:
    """The functional model of a plan over symbolic `inputs` (a tree of keras.Input), and its variables by the plan's names;
    weights are still to be loaded."""
    variables: dict[str, Any] = {}
    outputs = _chain(plan, inputs, "", variables)
    return keras.Model(inputs, outputs), {name: get() for name, get in variables.items()}


def _chain(plan: Plan, x: Any, place: str, variables: dict[str, Any]) -> Any:
    for i, layer in enumerate(plan):
        here = f"{place}{i}"
        if isinstance(layer, p.Streams):
            x = [_chain(plan, layer.part(x, k), f"{here}/{k}/", variables) for k, plan in layer.plans.items()]
            x = keras.layers.Concatenate()(x) if len(x) > 1 else x[0]
        elif isinstance(layer, p.Dueling):
            streams = [_chain(getattr(layer, k), x, f"{here}/{k}/", variables) for k in ("value", "advantage")]
            x = CombineDueling()(streams)
        else:
            made = _layer(layer)
            x = made(x)
            for name in layer.init(np.random.default_rng(0)):
                attribute = {"scale": "gamma", "bias": "beta"}[name] if isinstance(layer, p.LayerNorm) else name
                variables[f"{here}/{name}"] = lambda m=made, a=attribute: getattr(m, a)
    return x


def _layer(layer: p.Layer) -> keras.layers.Layer:
    if isinstance(layer, noisy.NoisyDense):
        return NoisyDense(layer.inputs, layer.units, layer.activation)
    if isinstance(layer, p.Dense):
        return keras.layers.Dense(layer.units, activation=layer.activation, kernel_initializer="zeros")
    if isinstance(layer, p.Conv):
        return keras.layers.Conv2D(
            layer.filters, layer.kernel, layer.stride, activation=layer.activation, data_format="channels_last"
        )
    if isinstance(layer, p.LayerNorm):
        return keras.layers.LayerNormalization(epsilon=layer.epsilon)
    if isinstance(layer, p.Activation):
        return keras.layers.Activation(_exact_gelu if layer.activation == "gelu" else layer.activation)
    if isinstance(layer, p.OneHot):
        return OneHot(layer.sizes, layer.start)
    if isinstance(layer, p.Cast):
        return Cast(layer.width)
    if isinstance(layer, p.Normalize):
        return Normalize(layer.width, layer.clip)
    if isinstance(layer, p.Scale):
        return Scale(layer.width, layer.initial)
    if isinstance(layer, p.Image):
        return Image(layer.channels_first)
    if isinstance(layer, p.Half):
        return Half(layer.inputs, layer.second)
    return keras.layers.Flatten(data_format="channels_last")


@keras.saving.register_keras_serializable("tandem")
def _exact_gelu(x: Any) -> Any:
    return ops.gelu(x, approximate=False)


def recognise(model: Any, features: int) -> tuple[Plan, dict[str, Any]] | None:
    """The plan of a user's model that is a chain of known layers on `features` numbers, and its variables by the plan's
    names; None where it is anything else."""
    if not isinstance(model, keras.Model) or not model.built or not (layers := _in_a_row(model)):
        return None
    plan: list[p.Layer] = []
    variables: dict[str, Any] = {}
    for layer in layers:
        if layer.compute_dtype != "float32" or layer.variable_dtype != "float32":
            return None
        if type(layer) is keras.layers.Dense and layer.use_bias and _activation(layer) in p.ACTIVATIONS:
            variables |= {f"{len(plan)}/kernel": layer.kernel, f"{len(plan)}/bias": layer.bias}
            plan.append(p.Dense(features, layer.units, _activation(layer)))
            features = layer.units
        elif type(layer) is keras.layers.LayerNormalization and _plain_norm(layer):
            variables |= {f"{len(plan)}/scale": layer.gamma, f"{len(plan)}/bias": layer.beta}
            plan.append(p.LayerNorm(features, layer.epsilon))
        elif type(layer) is keras.layers.Activation and _activation(layer) in p.ACTIVATIONS:
            plan.append(p.Activation(_activation(layer)))
        elif type(layer) is keras.layers.ReLU and (layer.max_value, layer.negative_slope, layer.threshold) == (None, 0, 0):
            plan.append(p.Activation("relu"))
        else:
            return None
    return (tuple(plan), variables) if any(isinstance(layer, p.Dense) for layer in plan) else None


def _in_a_row(model: Any) -> list[Any]:
    """The layers of a model that calls one after the other, each once; none where it does otherwise."""
    if type(model) is keras.Sequential:
        return list(model.layers)
    if type(model).__name__ != "Functional" or len(model.inputs) != 1 or len(model.outputs) != 1:
        return []
    x, found = model.inputs[0], []
    for layer in model.layers[1:]:
        if len(layer._inbound_nodes) != 1 or layer.input is not x:
            return []
        x = layer.output
        found.append(layer)
    return found if x is model.outputs[0] else []


def _activation(layer: Any) -> str:
    """The name of a layer's activation if it is Keras's own of that name, else nothing."""
    name = getattr(layer.activation, "__name__", "")
    return name if getattr(keras.activations, name, None) is layer.activation else ""


def _plain_norm(layer: Any) -> bool:
    return bool(layer.axis in (-1, [-1], 1, [1]) and layer.scale and layer.center and not layer.get_config().get("rms_scaling"))


def read(variables: dict[str, Any]) -> Weights:
    """The values of a plan's variables, as NumPy arrays of their own."""
    to_numpy = keras.ops.convert_to_numpy if keras.backend.backend() == "torch" else np.asarray  # the first is slower
    return {n: np.array(to_numpy(v.value), copy=True) for n, v in variables.items()}


def write(variables: dict[str, Any], weights: Weights) -> None:
    """Puts weights into a plan's variables."""
    for n, v in variables.items():
        v.assign(np.asarray(weights[n]))


def forward(model: Any, values: list[Any], x: Tree) -> Any:
    """The model's output in inference mode, with `values` for its variables."""
    with keras.StatelessScope(list(zip(model.variables, values, strict=True))):
        return model(x, training=False)


def frozen(model: Any, weights: list[np.ndarray[Any, Any]]) -> Callable[[Tree], np.ndarray[Any, Any]]:
    """A forward function, NumPy in and out, of a model with weights of its own."""
    call: Any = partial(forward, model, [ops.convert_to_tensor(w) for w in weights])
    if keras.backend.backend() == "jax":
        call = sys.modules["jax"].jit(call)
    elif keras.backend.backend() == "tensorflow":
        call = sys.modules["tensorflow"].function(call, reduce_retracing=True, autograph=False)
    return lambda x: np.asarray(ops.convert_to_numpy(call(tree_map(ops.convert_to_tensor, x))))


# --- what users give ---------------------------------------------------------------------------------------------------


class OnFeatures(keras.Model):
    """The user's body, and our head on its features beside the action."""

    def __init__(self, body: Any, head: Any) -> None:
        super().__init__(name="on_features")  # TensorFlow takes no name that begins with an underscore
        self.body, self.head = body, head

    def call(self, x: Any, training: bool | None = None) -> Any:
        return self.head(ops.concatenate([self.body(x["obs"], training=training), x["action"]], -1))


def symbolic(inputs: Any, name: str | None = None) -> Any:
    """Keras inputs for a tree of Leaves."""
    if isinstance(inputs, dict):
        return {k: symbolic(v, k.replace("/", "_")) for k, v in inputs.items()}
    return keras.Input(inputs.shape, name=name, dtype="int32" if inputs.dtype.startswith("int") else inputs.dtype)


def given(name: str, source: Given) -> tuple[Any, Plan | None, dict[str, Any]]:
    """The network of a role that stands on what the user makes: (model, its plan where all its layers are known, its variables
    by the plan's names, else those of the head by the head's)."""
    state = random.getstate()
    random.seed(source.seed)  # Keras draws the seeds of its initialisers from Python's generator
    try:
        return _given(name, source)
    finally:
        random.setstate(state)


def _given(name: str, source: Given) -> tuple[Any, Plan | None, dict[str, Any]]:
    made = source.make()
    if isinstance(made, tuple):
        return _apart(name, source, made)
    out, known = _looked_at(name, source, made)
    if not source.head:
        return (made, *(known or (None, {})))
    width = out + (source.inputs["action"].width if source.with_action else 0)
    head_plan = fit(source.head, width)
    head, variables = build(head_plan, keras.Input((width,)))
    write(variables, init(head_plan, np.random.default_rng(source.seed)))
    model = OnFeatures(made, head) if source.with_action else keras.Sequential([made, head])
    model(tree_map(ops.convert_to_tensor, example(source.inputs)))
    if known is None or source.with_action:
        return model, None, variables
    plan, named = known
    return model, plan + head_plan, named | _shifted(variables, len(plan))


def _looked_at(name: str, source: Given, body: Any) -> tuple[int, tuple[Plan, dict[str, Any]] | None]:
    """How many numbers a model puts out, and its plan and variables if they are known."""
    if not isinstance(body, keras.layers.Layer):
        raise NetworkError(
            f"network= gave a {type(body).__name__} for {name!r}.",
            f"a Keras model, since the framework is Keras on {keras.backend.backend()}",
            "return a model, or choose the framework your network is made with.",
        )
    zeros = tree_map(ops.convert_to_tensor, example(source.inputs))
    out = source.features(name, lambda: body(zeros["obs"] if source.head and source.with_action else zeros))
    return int(out.shape[1]), recognise(body, source.inputs.shape[0]) if vector(source.inputs) else None


def _apart(name: str, source: Given, bodies: tuple[Any, ...]) -> tuple[Any, Plan | None, dict[str, Any]]:
    """Each stream of the head on a body of its own."""
    inputs, outs, plans = symbolic(source.inputs), [], []
    variables: dict[str, Any] = {}
    own: dict[str, Any] = {}
    for i, (body, (stream, head)) in enumerate(zip(bodies, whole_streams(source.head).items(), strict=True)):
        width, known = _looked_at(name, source, body)
        mine: dict[str, Any] = {}
        outs.append(_chain(fit(head, width), body(inputs), "", mine))
        mine = {n: get() for n, get in mine.items()}
        write(mine, init(fit(head, width), np.random.default_rng(source.seed + i)))
        own |= {f"{stream}/{n}": v for n, v in mine.items()}
        if known is not None:
            plans.append(known[0])
            variables |= {f"0/{stream}/{n}": v for n, v in (known[1] | _shifted(mine, len(known[0]))).items()}
    joined = CombineDueling()(outs) if isinstance(source.head[0], p.Dueling) else keras.layers.Concatenate()(outs)
    model = keras.Model(inputs, joined)
    return (model, apart(tuple(plans), source.head), variables) if len(plans) == len(bodies) else (model, None, own)


def _shifted(variables: dict[str, Any], places: int) -> dict[str, Any]:
    """Variables by the names they have `places` layers further on."""
    return {f"{int(n.split('/', 1)[0]) + places}/{n.split('/', 1)[1]}": v for n, v in variables.items()}
