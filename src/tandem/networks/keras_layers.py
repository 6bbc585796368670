"""Conversion of plans to Keras models, and reading and writing of their weights."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import keras
import numpy as np

from tandem.networks import plan as p
from tandem.networks import serial
from tandem.networks.implicit import Product, WithFractions
from tandem.networks.plan import Plan, Weights
from tandem.networks.recurrent import Memory, Recurrent
from tandem.networks.renorm import BatchRenorm
from tandem.networks.several import Several
from tandem.networks.simba import RunningNorm
from tandem.networks.weight_norm import WeightNormConv, normalized
from tandem.types import AnyArray, Array, JSONDict, Tree, Variable, leaves, tree_map

ops = keras.ops
Shape = tuple[int | None, ...]  # None: any length


@keras.saving.register_keras_serializable("tandem")
class PlanLayer(keras.layers.Layer):
    """A plan's layer without a Keras equivalent: the plan's own forward function over Keras
    variables. layer: the layer, or its `serial.to_json`."""

    def __init__(self, layer: p.Layer | JSONDict, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.layer = layer if isinstance(layer, p.Layer) else serial.from_json([layer])[0]

    def build(self, shape: object) -> None:
        first = _first_weights(self.layer)
        # noise and its scale next to their weight: optimizers use this order
        stems = [name.partition("_")[0] for name in first]
        made = {
            name: self.add_weight(
                shape=first[name].shape,
                initializer=keras.initializers.Constant(first[name]),
                trainable=name not in self.layer.frozen,
                name=name,
            )
            for name in sorted(first, key=lambda name: stems.index(name.partition("_")[0]))
        }
        self.named = {name: made[name] for name in first}  # read in the plan's order

    @property
    def weights_by_name(self) -> Weights:
        """The weights as tensors."""
        return {name: variable.value for name, variable in self.named.items()}

    def call(self, x: Array) -> Array:
        return self.layer.forward(self.weights_by_name, x)

    def compute_output_shape(self, shape: Any) -> Shape:
        several = isinstance(shape, dict)
        example = {k: _zeros(s) for k, s in shape.items()} if several else _zeros(shape)
        first = next(iter(shape.values())) if several else shape
        out = self.layer.forward(_first_weights(self.layer), example).shape
        # axes of any length remain
        return tuple(None if None in first[i : i + 1] else n for i, n in enumerate(out))

    def get_config(self) -> JSONDict:
        return {**super().get_config(), "layer": serial.to_json((self.layer,))[0]}


@keras.saving.register_keras_serializable("tandem")
class Cell(PlanLayer):
    """A recurrent layer from features x, state and start to the states after each step."""

    layer: Memory

    def call(self, x: Array) -> Array:
        sequences = ops.shape(x["state"])[0]  # known only at run time
        return self.layer.unroll(self.weights_by_name, x["x"], x["state"], x["start"], sequences)

    def compute_output_shape(self, shapes: Any) -> Shape:
        return (shapes["x"][0], self.layer.size)


@keras.saving.register_keras_serializable("tandem")
class Moving(PlanLayer):
    """A layer whose statistics change in training mode."""

    layer: BatchRenorm | RunningNorm

    def call(self, x: Array, training: bool | None = None) -> Array:
        if not training:
            return super().call(x)
        out, moved = self.layer.train(self.weights_by_name, x)
        for name, value in moved.items():
            self.named[name].assign(value)
        return out


@keras.saving.register_keras_serializable("tandem")
class Convolving(PlanLayer):
    """A convolution with weight normalization."""

    layer: WeightNormConv

    def call(self, x: Array) -> Array:
        w, layer = self.weights_by_name, self.layer
        x = ops.conv(x, normalized(w), layer.stride, data_format="channels_last") + w["bias"]
        return p.activate(layer.activation, x)


@keras.saving.register_keras_serializable("tandem")
class EveryNth(keras.layers.Layer):
    """A layer that selects the rows first, first + step, first + 2 step, ..."""

    def __init__(self, first: int, step: int, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.first, self.step = first, step

    def call(self, x: Array) -> Array:
        return x[self.first :: self.step]

    def compute_output_shape(self, shape: Shape) -> Shape:
        return (None, *shape[1:])

    def get_config(self) -> JSONDict:
        return {**super().get_config(), "first": self.first, "step": self.step}


@keras.saving.register_keras_serializable("tandem")
class Times(keras.layers.Layer):
    """The product of features [B, F] and features of fractions [B, N, F]."""

    def call(self, parts: list[Array]) -> Array:
        return Product({}).joined(parts)

    def compute_output_shape(self, shapes: list[Shape]) -> Shape:
        return (shapes[0][0], *shapes[1][1:])


@keras.saving.register_keras_serializable("tandem")
class CombineDueling(keras.layers.Layer):
    """Dueling combination V + A - mean(A)."""

    def call(self, streams: list[Array]) -> Array:
        return p.combine_dueling(*streams)

    def compute_output_shape(self, shapes: list[Shape]) -> Shape:
        return shapes[1]


def _zeros(shape: Shape) -> AnyArray:
    """Return zeros of a Keras shape, with axes of any length set to 1."""
    return np.zeros([1 if n is None else n for n in shape], np.int64)


def _first_weights(layer: p.Layer) -> Weights:
    return layer.init(np.random.default_rng(0))


def build(plan: Plan, inputs: Tree) -> tuple[keras.Model, dict[str, Variable]]:
    """Return the functional model of a plan over symbolic `inputs` (a tree of keras.Input), with
    weights still to be loaded, and its variables by the plan's names."""
    variables: dict[str, Callable[[], Variable]] = {}
    outputs = chained(plan, inputs, "", variables)
    return functional(inputs, outputs), {name: get() for name, get in variables.items()}


def functional(inputs: Tree, outputs: Tree) -> keras.Model:
    """Return keras.Model(inputs, outputs) without the warning about entries such as "a/b", which
    cannot be names of Keras inputs."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "When providing `inputs` as a dict", UserWarning)
        return keras.Model(inputs, outputs)


def chained(plan: Plan, x: Tree, place: str, variables: dict[str, Callable[[], Variable]]) -> Array:
    """Return the output of a plan's Keras layers for a symbolic x. Adds functions that return the
    layers' variables to `variables`, by the plan's names below `place`."""
    for i, layer in enumerate(plan):
        here = f"{place}{i}"
        if isinstance(layer, p.Streams):
            x = [
                chained(plan, _part(layer, x, k), f"{here}/{k}/", variables)
                for k, plan in layer.plans.items()
            ]
            if isinstance(layer, Product):
                x = Times()(x)
            else:
                x = keras.layers.Concatenate()(x) if len(x) > 1 else x[0]
        elif isinstance(layer, p.Dueling):
            x = CombineDueling()(
                [chained(plan, x, f"{here}/{k}/", variables) for k, plan in layer.plans.items()]
            )
        elif isinstance(layer, Recurrent):
            features = chained(layer.body, x["obs"], f"{here}/body/", variables)
            cell = Cell(layer.cell)
            states = cell({"x": features, "state": x["state"], "start": x["start"]})
            seen = states
            if layer.action:
                two = layer.cell.size > layer.units  # an LSTM's outputs and cell states
                outputs = PlanLayer(p.Half(layer.cell.size, False))(states) if two else states
                seen = keras.layers.Concatenate()([outputs, x["action"]])
            x = keras.layers.Concatenate()(
                [chained(layer.head, seen, f"{here}/head/", variables), states]
            )
            getters = _variables(layer.cell, cell)
            variables |= {f"{here}/cell/{n}": get for n, get in getters.items()}
        else:
            keras_layer = _layer(layer)
            x = keras_layer(x)
            variables |= {f"{here}/{n}": get for n, get in _variables(layer, keras_layer).items()}
    return x


def _variables(layer: p.Layer, keras_layer: keras.Layer) -> dict[str, Callable[[], Variable]]:
    """Return functions that return the variables of a Keras layer, by the names of the plan's
    layer."""
    if isinstance(keras_layer, PlanLayer):
        return {n: partial(keras_layer.named.get, n) for n in keras_layer.named}
    names = {"scale": "gamma", "bias": "beta"} if isinstance(layer, p.LayerNorm) else {}
    return {n: partial(getattr, keras_layer, names.get(n, n)) for n in _first_weights(layer)}


def _part(layer: p.Streams, x: Tree, name: str) -> Tree:
    """Return the input of a stream. Symbolic inputs cannot be sliced without a layer."""
    if isinstance(layer, Several):
        return tree_map(EveryNth(int(name), len(layer.plans)), x)
    return layer.part(x, name)


def _layer(layer: p.Layer) -> keras.layers.Layer:
    if type(layer) is p.Dense:
        return keras.layers.Dense(
            layer.units, activation=layer.activation, kernel_initializer="zeros"
        )
    if type(layer) is p.Conv:
        return keras.layers.Conv2D(
            layer.filters,
            layer.kernel,
            layer.stride,
            activation=layer.activation,
            data_format="channels_last",
            kernel_initializer="zeros",
        )
    if isinstance(layer, p.LayerNorm):
        return keras.layers.LayerNormalization(epsilon=layer.epsilon)
    if isinstance(layer, p.Activation):
        return keras.layers.Activation(
            _exact_gelu if layer.activation == "gelu" else layer.activation
        )
    if isinstance(layer, p.Flatten):
        return keras.layers.Flatten(data_format="channels_last")
    if isinstance(layer, WeightNormConv):
        return Convolving(layer)
    return (Moving if isinstance(layer, (BatchRenorm, RunningNorm)) else PlanLayer)(layer)


@keras.saving.register_keras_serializable("tandem")
def _exact_gelu(x: Array) -> Array:
    return ops.gelu(x, approximate=False)


def read(variables: dict[str, Variable]) -> Weights:
    """Return copies of the values of a plan's variables as NumPy arrays."""
    # convert_to_numpy is slower
    to_numpy = keras.ops.convert_to_numpy if keras.backend.backend() == "torch" else np.asarray
    return {n: np.array(to_numpy(v.value), copy=True) for n, v in variables.items()}


def write(variables: dict[str, Variable], weights: Weights) -> None:
    """Set a plan's variables to these weights."""
    for n, v in variables.items():
        v.assign(np.asarray(weights[n]))


def forward(model: keras.Model, x: Tree, values: list[Array]) -> Array:
    """Return the model's output in inference mode, with `values` for its variables."""
    # not `stateless_call`, which passes `training` to a user's `call` that may not accept it
    with keras.StatelessScope(list(zip(model.variables, values, strict=True))):
        return model(x, training=False)


def frozen(model: keras.Model) -> Callable[..., AnyArray]:
    """Return a function (rows, values) of a model with values for its variables, from NumPy to
    NumPy."""
    call: Callable[..., Array] = partial(forward, model)
    if keras.backend.backend() == "jax":
        # independent of previous calls, so that equal agents round alike
        return in_few_lengths(sys.modules["jax"].jit(call), power_of_two)
    if keras.backend.backend() == "tensorflow":
        call = sys.modules["tensorflow"].function(call, reduce_retracing=True, autograph=False)
    return lambda x, values: np.asarray(
        ops.convert_to_numpy(call(tree_map(ops.convert_to_tensor, x), values))
    )


def trace(model: keras.Layer, x: Tree) -> None:
    """Trace the model for inputs like x, as the first step of the backend's compiler."""
    call = partial(forward, model, values=[v.value for v in model.variables])
    if keras.backend.backend() == "jax":
        sys.modules["jax"].eval_shape(call, x)
    elif keras.backend.backend() == "tensorflow":
        sys.modules["tensorflow"].function(call, autograph=False).get_concrete_function(x)


def in_few_lengths(
    run: Callable[..., Array], length: Callable[[int], int]
) -> Callable[..., AnyArray]:
    """Wrap `run`, a function of rows [N, ...] and further arguments that is compiled for each N.
    Rows are padded to `length(N)`, so that there are few lengths. From NumPy to NumPy."""

    def filled(x: Tree, *more: Tree) -> AnyArray:
        here = {len(a) for a in leaves(x)}
        rows = max(here)
        # otherwise steps, and states before them
        alike = len(here) == 1 or (isinstance(x, dict) and "fractions" in x)
        padded = length(rows) if alike else rows
        if padded != rows:
            x = tree_map(lambda a: lengthen(a, padded) if len(a) == rows else a, x)
        return np.asarray(run(tree_map(ops.convert_to_tensor, x), *more))[:rows]

    return filled


def padded_length(count: int, lengths: set[int]) -> int:
    """Return the number of updates or rows to which a call of `count` is padded, so that few
    lengths are compiled: the first two unchanged, then a known one less than twice as long, or a
    power of two. Adds it to the known `lengths`."""
    if count not in lengths and len(lengths) >= 2:
        count = min((n for n in lengths if count <= n < 2 * count), default=power_of_two(count))
    lengths.add(count)
    return count


def power_of_two(count: int) -> int:
    """Return the smallest power of two that is at least `count`."""
    return 1 << (count - 1).bit_length()


def lengthen(x: Array, count: int) -> Array:
    """Pad x [K, ...] to `count` rows by repeating its last row."""
    if ops.is_tensor(x):  # stays on its device
        return ops.concatenate([x, ops.repeat(x[-1:], count - len(x), 0)])
    return np.concatenate([np.asarray(x), np.repeat(np.asarray(x[-1:]), count - len(x), 0)])


def symbolic(inputs: Tree, name: str | None = None) -> Tree:
    """Return Keras inputs for a tree of Leaves."""
    if isinstance(inputs, WithFractions):
        any_number = keras.Input((None,), name="fractions", dtype="float32")
        return {"obs": symbolic(inputs["obs"], "obs"), "fractions": any_number}
    if isinstance(inputs, dict):
        return {
            k: symbolic(v, (f"{name}_" if name else "") + k.replace("/", "_"))
            for k, v in inputs.items()
        }
    return keras.Input(
        inputs.shape, name=name, dtype="int32" if inputs.dtype.startswith("int") else inputs.dtype
    )


def mode_dependent_layer(model: keras.Layer) -> str:
    """Return the type of a layer that behaves differently in training; see
    `backends.backend.Network`."""
    moving = keras.layers.BatchNormalization, keras.layers.SpectralNormalization

    def depends(layer: keras.Layer) -> bool:
        if isinstance(layer, moving):
            return bool(layer.trainable)
        if hasattr(layer, "recurrent_dropout"):  # always has a generator
            return bool(layer.dropout > 0 or layer.recurrent_dropout > 0)
        return bool(layer._seed_generators)

    return next((type(x).__name__ for x in model._flatten_layers() if depends(x)), "")
