"""Plans as Keras models, and the other way: weights out and in, and models of known layers
recognised."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import keras
import numpy as np

from tandem.networks import noisy, value_scale
from tandem.networks import plan as p
from tandem.networks.plan import Plan, Weights
from tandem.networks.recurrent import GRU, Recurrent, unroll
from tandem.networks.several import Several
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
        self.mean = self.add_weight(
            shape=(self.width,), initializer="zeros", trainable=False, name="mean"
        )
        self.variance = self.add_weight(
            shape=(self.width,), initializer="ones", trainable=False, name="variance"
        )

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
                setattr(
                    self,
                    name,
                    self.add_weight(shape=inner, initializer="zeros", trainable=trained, name=name),
                )

    def call(self, x: Any) -> Any:
        layer = noisy.NoisyDense(self.inputs, self.units, self.activation)
        return layer.forward({v.name: v.value for v in self.variables}, x)

    def compute_output_shape(self, shape: Any) -> Any:
        return (*shape[:-1], self.units)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "inputs": self.inputs,
            "units": self.units,
            "activation": self.activation,
        }


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
class Denormalize(keras.layers.Layer):
    """Values in the units of returns, by statistics that are set from outside."""

    def build(self, shape: Any) -> None:
        for name, value in value_scale.Denormalize().init(np.random.default_rng(0)).items():
            start = "ones" if value[0] else "zeros"
            setattr(
                self,
                name,
                self.add_weight(shape=(1,), initializer=start, trainable=False, name=name),
            )

    def call(self, x: Any) -> Any:
        return x * ops.sqrt(self.value_variance) + self.value_mean


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
class Every(keras.layers.Layer):
    """The rows first, first + step, first + 2 step, ..."""

    def __init__(self, first: int, step: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.first, self.step = first, step

    def call(self, x: Any) -> Any:
        return x[self.first :: self.step]

    def compute_output_shape(self, shape: Any) -> Any:
        return (None, *shape[1:])

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "first": self.first, "step": self.step}


@keras.saving.register_keras_serializable("tandem")
class CombineDueling(keras.layers.Layer):
    """V + A - mean(A)."""

    def call(self, streams: Any) -> Any:
        value, advantage = streams
        return value + advantage - ops.mean(advantage, -1, keepdims=True)

    def compute_output_shape(self, shapes: Any) -> Any:
        return shapes[1]


@keras.saving.register_keras_serializable("tandem")
class Cell(keras.layers.Layer):
    """A GRU, from features, state and starts to the states after each step."""

    def __init__(self, inputs: int, units: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.inputs, self.units = inputs, units
        first = GRU(inputs, units).init(np.random.default_rng(0))
        self.named = {
            n: self.add_weight(shape=x.shape, initializer="zeros", name=n) for n, x in first.items()
        }

    def call(self, x: Any, state: Any, start: Any) -> Any:
        w = {n: ops.convert_to_tensor(v) for n, v in self.named.items()}
        return unroll(w, x, state, start, ops.shape(state)[0])

    def compute_output_shape(self, x_shape: Any, state_shape: Any, start_shape: Any) -> Any:
        return (x_shape[0], self.units)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "inputs": self.inputs, "units": self.units}


def build(plan: Plan, inputs: Any) -> tuple[keras.Model, dict[str, Any]]:
    """The functional model of a plan over symbolic `inputs` (a tree of keras.Input), and its
    variables by the plan's names; weights are still to be loaded."""
    variables: dict[str, Any] = {}
    outputs = chained(plan, inputs, "", variables)
    return functional(inputs, outputs), {name: get() for name, get in variables.items()}


def functional(inputs: Any, outputs: Any) -> keras.Model:
    """keras.Model(inputs, outputs), which says nothing of entries such as "a/b", that no input of
    Keras may be named after."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "When providing `inputs` as a dict", UserWarning)
        return keras.Model(inputs, outputs)


def chained(plan: Plan, x: Any, place: str, variables: dict[str, Any]) -> Any:
    for i, layer in enumerate(plan):
        here = f"{place}{i}"
        if isinstance(layer, p.Streams):
            x = [
                chained(plan, _part(layer, x, k), f"{here}/{k}/", variables)
                for k, plan in layer.plans.items()
            ]
            x = keras.layers.Concatenate()(x) if len(x) > 1 else x[0]
        elif isinstance(layer, p.Dueling):
            streams = [
                chained(getattr(layer, k), x, f"{here}/{k}/", variables)
                for k in ("value", "advantage")
            ]
            x = CombineDueling()(streams)
        elif isinstance(layer, Recurrent):
            features = chained(layer.body, x["obs"], f"{here}/body/", variables)
            cell = Cell(layer.inputs, layer.units)
            states = cell(features, x["state"], x["start"])
            x = keras.layers.Concatenate()(
                [chained(layer.head, states, f"{here}/head/", variables), states]
            )
            variables |= {f"{here}/cell/{n}": lambda v=v: v for n, v in cell.named.items()}
        else:
            made = _layer(layer)
            x = made(x)
            for name in layer.init(np.random.default_rng(0)):
                attribute = (
                    {"scale": "gamma", "bias": "beta"}[name]
                    if isinstance(layer, p.LayerNorm)
                    else name
                )
                variables[f"{here}/{name}"] = lambda m=made, a=attribute: getattr(m, a)
    return x


def _part(layer: p.Streams, x: Any, name: str) -> Any:
    """What enters a stream; symbolic inputs cannot be sliced without a layer."""
    if isinstance(layer, Several):
        return tree_map(Every(int(name), len(layer.plans)), x)
    return layer.part(x, name)


def _layer(layer: p.Layer) -> keras.layers.Layer:
    if isinstance(layer, noisy.NoisyDense):
        return NoisyDense(layer.inputs, layer.units, layer.activation)
    if isinstance(layer, p.Dense):
        return keras.layers.Dense(
            layer.units, activation=layer.activation, kernel_initializer="zeros"
        )
    if isinstance(layer, p.Conv):
        return keras.layers.Conv2D(
            layer.filters,
            layer.kernel,
            layer.stride,
            activation=layer.activation,
            data_format="channels_last",
        )
    if isinstance(layer, p.LayerNorm):
        return keras.layers.LayerNormalization(epsilon=layer.epsilon)
    if isinstance(layer, p.Activation):
        return keras.layers.Activation(
            _exact_gelu if layer.activation == "gelu" else layer.activation
        )
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
    if isinstance(layer, value_scale.Denormalize):
        return Denormalize()
    return keras.layers.Flatten(data_format="channels_last")


@keras.saving.register_keras_serializable("tandem")
def _exact_gelu(x: Any) -> Any:
    return ops.gelu(x, approximate=False)


def read(variables: dict[str, Any]) -> Weights:
    """The values of a plan's variables, as NumPy arrays of their own."""
    to_numpy = (
        keras.ops.convert_to_numpy if keras.backend.backend() == "torch" else np.asarray
    )  # the first is slower
    return {n: np.array(to_numpy(v.value), copy=True) for n, v in variables.items()}


def write(variables: dict[str, Any], weights: Weights) -> None:
    """Puts weights into a plan's variables."""
    for n, v in variables.items():
        v.assign(np.asarray(weights[n]))


def forward(model: Any, values: list[Any], x: Tree) -> Any:
    """The model's output in inference mode, with `values` for its variables."""
    with keras.StatelessScope(list(zip(model.variables, values, strict=True))):
        return model(x, training=False)


def frozen(
    model: Any, weights: list[np.ndarray[Any, Any]]
) -> Callable[[Tree], np.ndarray[Any, Any]]:
    """A forward function, NumPy in and out, of a model with weights of its own."""
    call: Any = partial(forward, model, [ops.convert_to_tensor(w) for w in weights])
    if keras.backend.backend() == "jax":
        call = sys.modules["jax"].jit(call)
    elif keras.backend.backend() == "tensorflow":
        call = sys.modules["tensorflow"].function(call, reduce_retracing=True, autograph=False)
    return lambda x: np.asarray(ops.convert_to_numpy(call(tree_map(ops.convert_to_tensor, x))))


def symbolic(inputs: Any, name: str | None = None) -> Any:
    """Keras inputs for a tree of Leaves."""
    if isinstance(inputs, dict):
        return {
            k: symbolic(v, (f"{name}_" if name else "") + k.replace("/", "_"))
            for k, v in inputs.items()
        }
    return keras.Input(
        inputs.shape, name=name, dtype="int32" if inputs.dtype.startswith("int") else inputs.dtype
    )
