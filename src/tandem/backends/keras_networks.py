"""Keras models and separate variables for the backend interface, on TensorFlow or JAX."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import keras
import numpy as np

from tandem.backends import backend
from tandem.backends.keras_frozen import FrozenModel
from tandem.backends.variables import host
from tandem.networks import keras_layers as models
from tandem.networks.noisy import is_noise
from tandem.networks.plan import Plan, Weights
from tandem.networks.unit import is_unit
from tandem.types import AnyArray, Array, Tree, Variable

# TensorFlow- or JAX-specific functions. (Keras on torch uses the torch backend.)
ENGINE: Any = importlib.import_module(f"tandem.backends.keras_{keras.backend.backend()}")
ops = keras.ops


class KerasNetwork(backend.Network):
    """A Keras model, and its plan if all layers are known."""

    traced = False  # for all networks: True during tracing, when weights are read as tracers

    def __init__(
        self, name: str, model: keras.Model, plan: Plan | None, variables: dict[str, Variable]
    ) -> None:
        self.name, self.module, self.plan, self._named = name, model, plan, variables
        self.noise = {n: v for n, v in variables.items() if is_noise(n)}
        self.unit = [v for n, v in variables.items() if is_unit(n)]  # see `networks.unit`
        self.constrained = [v for v in model.trainable_variables if v.constraint is not None]
        self.learning = False
        self.layout: Any = None  # the backend's layout if it has several devices
        self._predict: Callable[[Tree], AnyArray] | None = None
        self._frozen: Callable[..., AnyArray] | None = None  # compiled once for all copies

    def __call__(self, x: Tree, training: bool | None = None) -> Array:
        training = self.learning if training is None else training
        if self.layout is not None:
            return self.layout.call(self.module, x, training)
        return self.module(x, training=training)

    def mode_dependent_layer(self) -> str:
        return models.mode_dependent_layer(self.module)

    @property
    def variables(self) -> list[Variable]:
        return list(self.module.variables)

    @property
    def _weights(self) -> dict[str, Variable]:
        """Variables by the plan's names, or by position without a plan."""
        return (
            self._named
            if self.plan is not None
            else {str(i): v for i, v in enumerate(self.variables)}
        )

    def parts(self) -> dict[str, Variable]:
        if self.plan is None:
            return {v.path.replace("/", "."): v for v in self.module.trainable_variables}
        kept = {id(v) for v in self.module.trainable_variables}
        return {n.replace("/", "."): v for n, v in self._named.items() if id(v) in kept}

    def read(self) -> Weights:
        if self.traced:
            return {n: v.value for n, v in self._weights.items()}
        return models.read(self._weights)

    def copy_to(self, weights: Weights) -> None:
        for name, v in self._weights.items():
            np.copyto(weights[name], np.asarray(v._value))  # `value` looks up scopes each time

    def write(self, weights: Weights) -> None:
        if self.traced:
            for n, v in self._weights.items():
                if weights[n] is not v.value:
                    v.assign(weights[n])
        else:
            models.write(self._weights, weights)

    def pairs(self, weights: Weights) -> list[tuple[Variable, Array]]:
        """Return each variable with its weights."""
        return [(v, weights[n]) for n, v in self._weights.items()]

    def place(self, noise: dict[str, Array]) -> None:
        for n, x in noise.items():
            self._named[n].assign(x)

    def predict(self, x: Tree) -> AnyArray:
        if self._predict is None:
            length = partial(models.padded_length, lengths=set())
            self._predict = models.in_few_lengths(ENGINE.forward(self.module), length)
        return self._predict(x)

    def frozen(self, weights: Weights) -> Callable[[Tree], AnyArray]:
        self._frozen = self._frozen or models.frozen(self.module)
        values = [weights[str(i)] for i in range(len(self.variables))]
        return FrozenModel(self.module, values, self._frozen)


class KerasScalar(backend.Trained):
    """A trainable scalar."""

    decays = False

    def __init__(self, name: str, value: float) -> None:
        self.name, self.learning = name, False
        self.variable = keras.Variable(float(value), dtype="float32", name=name)
        self.variables = self.trainable_variables = [self.variable]
        self.module = self

    def __call__(self) -> Array:
        return self.variable.value

    def read(self) -> Weights:
        return {"value": np.array(host(self.variable), copy=True)}

    def write(self, weights: Weights) -> None:
        self.variable.assign(weights["value"])


class KerasFreeVariable(KerasScalar):
    """A variable of a user's agent outside its models."""

    decays = True

    def __init__(self, name: str, variable: Variable) -> None:
        self.name, self.learning, self.variable, self.module = name, False, variable, self
        self.variables = self.trainable_variables = [variable]


class Raw:
    """A tf.Variable with the interface of a Keras variable."""

    trainable = False

    def __init__(self, inner: Variable) -> None:
        self.inner = self._value = inner
        self.shape = inner.shape
        self.dtype = inner.dtype.name
        self.assign = inner.assign

    @property
    def value(self) -> Array:
        return self.inner.read_value()
