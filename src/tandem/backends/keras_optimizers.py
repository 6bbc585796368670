"""Optimizers for Keras on TensorFlow and JAX."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from itertools import accumulate
from typing import Any

import keras
import numpy as np

from tandem.backends.backend import RECORDER
from tandem.backends.variables import host
from tandem.errors import SettingError
from tandem.math.optimization import rectification
from tandem.types import AnyArray, Array, JSONDict, Variable

ops = keras.ops
NUMBERS = {"weight_decay": "weight_decay", "beta1": "beta_1", "beta2": "beta_2"}  # Keras's names
TOGETHER = 2**14  # size below which weights are optimized together as one vector


class KerasOptimizer:
    """Gradient descent on vectors: one per large weight, and one for all small weights together.
    Keras's optimizers process weights one by one, which takes XLA half a second longer to compile
    and makes a SAC update 10% slower; and its Adam and RMSProp add epsilon in a different place
    than the papers and torch."""

    def __init__(self, name: str, networks: list[Any]) -> None:
        self.name, self.networks = name, networks
        self.unit = [v for n in networks for v in n.unit]  # projected after each step
        self.trained = list(
            {id(v): v for n in networks for v in n.module.trainable_variables}.values()
        )
        sizes = [math.prod(v.shape) for v in self.trained]
        self.size = sum(sizes)
        small = [i for i, size in enumerate(sizes) if size < TOGETHER]
        self._groups = [[i] for i, size in enumerate(sizes) if size >= TOGETHER] + (
            [small] if small else []
        )
        self._sizes = [[sizes[i] for i in group] for group in self._groups]
        self.variables: list[Variable] = []
        self.weight_decay = 0.0  # multiplied by the step size

    def _vectors(self, name: str, value: float) -> list[Variable]:
        """Create a variable per vector in the optimizer's state."""
        vectors = [
            keras.Variable(
                np.full(sum(sizes), value, np.float32),
                trainable=False,
                name=f"{self.name}_{name}_{i}",
            )
            for i, sizes in enumerate(self._sizes)
        ]
        self.variables += vectors
        return vectors

    def vectors(self, gradients: list[Array]) -> list[Array]:
        """Convert the gradients of all weights to this optimizer's vectors."""
        flat = [ops.reshape(g, (-1,)) for g in gradients]
        return [
            ops.concatenate([flat[i] for i in group]) if len(group) > 1 else flat[group[0]]
            for group in self._groups
        ]

    def from_vector(self, gradient: Array) -> list[Array]:
        """Convert a gradient [size] to this optimizer's vectors."""
        return self.vectors(self.parts(gradient))

    def parts(self, gradient: Array) -> list[Array]:
        """Split a vector [size] into one gradient per weight."""
        ends = list(accumulate(math.prod(v.shape) for v in self.trained))
        return [
            ops.reshape(gradient[a:b], v.shape)
            for v, a, b in zip(self.trained, [0, *ends[:-1]], ends, strict=True)
        ]

    def apply(self, gradients: list[Array], learning_rate: Array, keep: Array = True) -> None:
        """Move the weights against the gradient vectors. keep: see `Backend.apply`."""
        self.begin()
        for k, (group, sizes) in enumerate(zip(self._groups, self._sizes, strict=True)):
            change = learning_rate * self.direction(k, gradients[k])
            at = 0
            for i, size in zip(group, sizes, strict=True):
                weight = self.trained[i]
                left = weight.value
                if self.weight_decay:
                    left = left * (1.0 - learning_rate * self.weight_decay)
                weight.assign(left - ops.reshape(change[at : at + size], weight.shape))
                if weight.constraint is not None:
                    weight.assign(weight.constraint(weight.value))
                at += size

    def begin(self) -> None:
        """Prepare for the directions of an update."""

    def direction(self, k: int, gradient: Array) -> Array:
        """Return the direction of vector k for step size 1: here the gradient."""
        return gradient


class KerasAdam(KerasOptimizer):
    """Adam (Kingma & Ba 2015, arXiv:1412.6980, algorithm 1), with weight decay as in Loshchilov &
    Hutter 2019, arXiv:1711.05101, algorithm 2."""

    def __init__(
        self,
        name: str,
        networks: list[Any],
        epsilon: float = 1e-8,
        beta1: float = 0.9,
        beta2: float = 0.999,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(name, networks)
        self.epsilon, self.beta1, self.beta2 = epsilon, beta1, beta2
        self.weight_decay = weight_decay
        self.updates = keras.Variable(
            np.int32(0), dtype="int32", trainable=False, name=f"{name}_updates"
        )
        self.variables.append(self.updates)
        self.first, self.second = self._vectors("first", 0.0), self._vectors("second", 0.0)

    def begin(self) -> None:
        self.updates.assign(self.updates.value + 1)

    def direction(self, k: int, gradient: Array) -> Array:
        first, second, t = self.first[k], self.second[k], ops.cast(self.updates.value, "float32")
        first.assign(first.value * self.beta1 + gradient * (1.0 - self.beta1))
        # Parenthesized so that XLA does not share the square with the gradient's norm: it would
        # write it to memory and read it back.
        second.assign(second.value * self.beta2 + gradient * (gradient * (1.0 - self.beta2)))
        root = ops.sqrt(second.value / (1.0 - ops.power(self.beta2, t))) + self.epsilon
        return first.value / (1.0 - ops.power(self.beta1, t)) / root


class KerasRAdam(KerasAdam):
    """RAdam (Liu et al. 2020, arXiv:1908.03265, algorithm 2)."""

    def __init__(self, name: str, networks: list[Any], **options: float) -> None:
        super().__init__(name, networks, **options)
        # computed in float64, since float32 cannot resolve the first ones; after the last it is 1
        last = max(1, math.ceil(-36 / math.log(self.beta2)))
        self.factors = rectification(np.arange(1, last + 1), self.beta2)

    def direction(self, k: int, gradient: Array) -> Array:
        adapted, t = super().direction(k, gradient), self.updates.value
        at = ops.minimum(t, len(self.factors)) - 1
        factor = ops.take(ops.convert_to_tensor(self.factors), at)
        mean = self.first[k].value / (1.0 - ops.power(self.beta1, ops.cast(t, "float32")))
        return ops.where(factor > 0, factor * adapted, mean)


class KerasRMSProp(KerasOptimizer):
    """RMSProp (Mnih et al. 2016, arXiv:1602.01783, supplement); the mean square starts at 1."""

    def __init__(
        self, name: str, networks: list[Any], decay: float = 0.99, epsilon: float = 1e-5
    ) -> None:
        super().__init__(name, networks)
        self.decay, self.epsilon = decay, epsilon
        self.square = self._vectors("square", 1.0)

    def direction(self, k: int, gradient: Array) -> Array:
        square = self.square[k]
        square.assign(square.value * self.decay + gradient * gradient * (1.0 - self.decay))
        return gradient / ops.sqrt(square.value + self.epsilon)


class KerasRecorder(KerasOptimizer):
    """A recorder of the gradient of all weights as one vector, which changes no weight."""

    def __init__(self, name: str, networks: list[Any], **_: float) -> None:
        super().__init__(name, networks)
        self.unit = []
        self.variables = [
            keras.Variable(
                np.zeros(self.size, np.float32), trainable=False, name=f"{name}_gradient"
            )
        ]

    def vectors(self, gradients: list[Array]) -> list[Array]:
        return [ops.concatenate([ops.reshape(g, (-1,)) for g in gradients])]

    @property
    def recorded(self) -> AnyArray:
        """The gradient of the latest update; see `Backend.optimizer`."""
        return np.asarray(self.variables[0].value)

    def apply(self, gradients: list[Array], learning_rate: Array, keep: Array = True) -> None:
        self.variables[0].assign(gradients[0])


class KerasOptimizerCopy(KerasOptimizer):
    """A copy of a Keras optimizer, with the original's step size and other arguments."""

    def __init__(self, name: str, networks: list[Any], given: keras.optimizers.Optimizer) -> None:
        super().__init__(name, networks)
        if not isinstance(given, keras.optimizers.Optimizer):
            raise SettingError(
                f"optimizer= is a {type(given).__name__}.",
                "an optimizer name or a Keras optimizer, since the framework is Keras on "
                f"{keras.backend.backend()}",
                "give a Keras optimizer, such as keras.optimizers.Adam(learning_rate=3e-4).",
            )
        if isinstance(given, keras.optimizers.LossScaleOptimizer):
            given = given.inner_optimizer  # what over- or underflows in float16 does not in float32
        self.inner = _copied(given)
        # not part of its configuration
        undecayed = getattr(given, "_exclude_from_weight_decay_pattern", None)
        if undecayed is not None:
            self.inner.exclude_from_weight_decay(var_names=[undecayed.pattern])
        if not any(n.decays for n in networks):
            decaying = getattr(self.inner, "inner_optimizer", self.inner)  # a LossScaleOptimizer's
            decaying.exclude_from_weight_decay(var_list=self.trained)
        self.inner.build(self.trained)
        self.variables = list(self.inner.variables)

    def vectors(self, gradients: list[Array]) -> list[Array]:
        return gradients

    def apply(self, gradients: list[Array], learning_rate: Array, keep: Array = True) -> None:
        self.inner.apply(gradients, self.trained)


def options(optimizer: keras.optimizers.Optimizer) -> JSONDict:
    """Return the optimizer's configuration, with a learning rate schedule or function as an object:
    Keras finds only registered classes by name."""
    own, rate = vars(optimizer), optimizer._learning_rate
    if not callable(rate):
        return dict(optimizer.get_config())
    own["_learning_rate"] = None
    try:
        return {**optimizer.get_config(), "learning_rate": rate}
    finally:
        own["_learning_rate"] = rate


def _copied(given: keras.optimizers.Optimizer) -> keras.optimizers.Optimizer:
    """Return a new optimizer of the same type and configuration."""
    try:
        return type(given).from_config(options(given))
    except Exception as error:  # its class may raise anything
        kind = type(given).__name__
        raise SettingError(
            f"optimizer= is a {kind} that cannot be copied: {error}",
            "a class whose get_config returns the arguments of its __init__",
            f"define get_config in {kind}.",
        ) from error


class KerasOptimizerWrapper:
    """A user's Keras optimizer: itself, not a copy. layout: the backend's."""

    unit = ()

    def __init__(
        self,
        name: str,
        optimizer: keras.optimizers.Optimizer,
        weights: list[Variable],
        layout: Any = None,
    ) -> None:
        if not isinstance(optimizer, keras.optimizers.Optimizer):
            raise SettingError(
                f"an optimizer is a {type(optimizer).__name__}.",
                f"a Keras optimizer, since the agent uses Keras on {keras.backend.backend()}",
                "give a Keras optimizer, such as keras.optimizers.Adam().",
            )
        if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
            optimizer = optimizer.inner_optimizer
        self.name, self.inner, self._weights, self._layout = name, optimizer, weights, layout
        self.trained: list[Variable] = []
        # hyperparameters passed to an update as inputs, by the names of `numbers`
        self.inputs: dict[str, Array] = {}
        self.look()
        self.variables = list(optimizer.variables)

    def look(self) -> bool:
        """Find its weights, without those that are currently frozen. Return whether they have
        changed."""
        trained, optimizer, name = [v for v in self._weights if v.trainable], self.inner, self.name
        if not trained:
            raise SettingError(
                f"the optimizer {name} has no trainable weights.",
                "variables of built networks in agent.param",
                "build the networks before taking their weights: call each on a batch of zeros, "
                "or give it an Input; and leave some weights trainable.",
            )
        if not optimizer.built:
            _move_into_scope(optimizer)
            optimizer.build(trained)
        elif {id(v) for v in trained} - {
            id(v) for v in optimizer._trainable_variables
        }:  # Keras cannot add weights later
            raise SettingError(
                f"the optimizer {name} has already trained other weights, or these were frozen "
                "when it started.",
                "a new optimizer, or one that has trained all these weights from the start",
                "set agent.optimizer = keras.optimizers.Adam(), or freeze weights only after the "
                "first training.",
            )
        before, self.trained = self.trained, trained
        return [id(v) for v in before] != [id(v) for v in trained]

    def __enter__(self) -> KerasOptimizerWrapper:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: the variables belong to the optimizer."""

    def vectors(self, gradients: list[Array]) -> list[Array]:
        """Return the gradients of `trained`, which Keras takes as they are."""
        return gradients

    def apply(self, gradients: list[Array], learning_rate: None, keep: Array) -> None:
        """Make a step against the gradients of `trained`, with its hyperparameters or those in
        `inputs`, and on all devices if there are several. keep: see `Backend.apply`."""
        own, layout = vars(self.inner), self._layout
        before = {NUMBERS[n]: own[NUMBERS[n]] for n in self.inputs}
        own.update({NUMBERS[n]: x for n, x in self.inputs.items()})
        try:
            if layout is not None and layout.divides_rows:
                layout.apply(self.inner, gradients, self.trained, keep)
            else:
                self.inner.apply(gradients, self.trained)
        finally:
            own.update(before)

    def numbers(self, name: str) -> list[float]:
        """Return its "lr", "weight_decay", "beta1" or "beta2" in a list, or [] if it has none or a
        schedule."""
        if name == "lr":
            rate = self.inner._learning_rate
            return [float(host(rate))] if isinstance(rate, keras.Variable) else []
        x = vars(self.inner).get(NUMBERS[name])
        return [float(x)] if isinstance(x, (int, float)) else []

    def set_numbers(self, name: str, values: list[float]) -> None:
        """Set that value. Compiled code sees it if it is an input, as "lr" always is."""
        (value,) = values
        if name == "lr":
            self.inner.learning_rate = value
        else:
            setattr(self.inner, NUMBERS[name], value)

    def settings(self) -> JSONDict:
        """Return its class, its numbers (momenta, decay; the learning rate is one of its variables)
        and its number of variables, as JSON data."""
        numbers = {
            n: x
            for n, x in options(self.inner).items()
            if x is None or isinstance(x, (bool, int, float))
        }
        numbers = {n: x for n, x in numbers.items() if n in vars(self.inner)}
        return {
            "kind": type(self.inner).__name__,
            "groups": [numbers],
            "variables": len(self.variables),
        }

    def adjust(self, settings: JSONDict) -> None:
        """Set the numbers from `settings`. Raises ValueError if their optimizer had a different
        number of variables."""
        if settings["variables"] != len(self.variables):
            raise ValueError(
                f"its {settings['kind']} has {settings['variables']} variables, this one "
                f"{len(self.variables)}"
            )
        for name in vars(self.inner).keys() & settings["groups"][0].keys():
            setattr(self.inner, name, settings["groups"][0][name])


def _move_into_scope(optimizer: keras.optimizers.Optimizer) -> None:
    """Recreate in place an optimizer that was created outside the current TensorFlow strategy's
    scope, where its variables could not be used."""
    made_in = getattr(optimizer, "_distribution_strategy", None)  # None on JAX
    if made_in is not None and made_in is not sys.modules["tensorflow"].distribute.get_strategy():
        vars(optimizer).update(vars(type(optimizer).from_config(optimizer.get_config())))


OPTIMIZERS: dict[str, Callable[..., KerasOptimizer]] = {
    "adam": KerasAdam,
    "radam": KerasRAdam,
    "rmsprop": KerasRMSProp,
    "sgd": KerasOptimizer,
    RECORDER: KerasRecorder,
}
