"""Optimizers for Keras on TensorFlow and JAX."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from itertools import accumulate
from typing import Any

import keras
import numpy as np

from tandem.backends.variables import host
from tandem.errors import SettingError
from tandem.math.optimization import rectification
from tandem.types import Array, JSONDict, Variable

ops = keras.ops
NUMBERS = {"weight_decay": "weight_decay", "beta1": "beta_1", "beta2": "beta_2"}  # Keras's names
TOGETHER = 2**14  # numbers; weights of fewer are optimized as one vector


class KerasOptimizer:
    """Gradient descent on vectors: one for each large weight, and one for all small ones together.
    Keras's own optimizers take weights one by one, for which XLA compiles half a second longer and
    a SAC update takes a tenth longer; and its Adam and RMSProp add epsilon elsewhere than the
    papers and torch."""

    def __init__(self, name: str, networks: list[Any]) -> None:
        self.name, self.networks = name, networks
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
        self.weight_decay = 0.0  # times the step size

    def _vectors(self, name: str, value: float) -> list[Variable]:
        """A variable for each vector, in the optimizer's state."""
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
        """The gradients of all weights as this optimizer's vectors."""
        flat = [ops.reshape(g, (-1,)) for g in gradients]
        return [
            ops.concatenate([flat[i] for i in group]) if len(group) > 1 else flat[group[0]]
            for group in self._groups
        ]

    def parts(self, gradient: Array) -> list[Array]:
        """One vector [size] as a gradient for each weight."""
        ends = list(accumulate(math.prod(v.shape) for v in self.trained))
        return [
            ops.reshape(gradient[a:b], v.shape)
            for v, a, b in zip(self.trained, [0, *ends[:-1]], ends, strict=True)
        ]

    def apply(self, gradients: list[Array], learning_rate: Array) -> None:
        """Moves the weights against such vectors."""
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
        """Before the directions of an update."""

    def direction(self, k: int, gradient: Array) -> Array:
        """Where the k-th vector goes, for a step of 1; plain descent."""
        return gradient


class KerasAdam(KerasOptimizer):
    """Kingma & Ba 2015, arXiv:1412.6980, algorithm 1; weights decay as in Loshchilov & Hutter 2019,
    arXiv:1711.05101, algorithm 2."""

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
        # Bracketed so that XLA does not share the square with the gradient's norm: it would write
        # it down and read it again.
        second.assign(second.value * self.beta2 + gradient * (gradient * (1.0 - self.beta2)))
        root = ops.sqrt(second.value / (1.0 - ops.power(self.beta2, t))) + self.epsilon
        return first.value / (1.0 - ops.power(self.beta1, t)) / root


class KerasRAdam(KerasAdam):
    """Liu et al. 2020, arXiv:1908.03265, algorithm 2."""

    def __init__(self, name: str, networks: list[Any], **options: float) -> None:
        super().__init__(name, networks, **options)
        # of float64, since float32 cannot tell the first ones; behind the last it is 1
        last = max(1, math.ceil(-36 / math.log(self.beta2)))
        self.factors = rectification(np.arange(1, last + 1), self.beta2)

    def direction(self, k: int, gradient: Array) -> Array:
        adapted, t = super().direction(k, gradient), self.updates.value
        at = ops.minimum(t, len(self.factors)) - 1
        factor = ops.take(ops.convert_to_tensor(self.factors), at)
        mean = self.first[k].value / (1.0 - ops.power(self.beta1, ops.cast(t, "float32")))
        return ops.where(factor > 0, factor * adapted, mean)


class KerasRMSProp(KerasOptimizer):
    """Mnih et al. 2016, arXiv:1602.01783, supplement; the mean square begins at 1."""

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


class KerasGradientRecorder(KerasOptimizer):
    """Keeps the gradient of all weights as one vector, and moves nothing."""

    def __init__(self, name: str, networks: list[Any], **_: float) -> None:
        super().__init__(name, networks)
        self.variables = [
            keras.Variable(
                np.zeros(self.size, np.float32), trainable=False, name=f"{name}_gradient"
            )
        ]

    def vectors(self, gradients: list[Array]) -> list[Array]:
        return [ops.concatenate([ops.reshape(g, (-1,)) for g in gradients])]

    def apply(self, gradients: list[Array], learning_rate: Array) -> None:
        self.variables[0].assign(gradients[0])


class KerasOptimizerCopy(KerasOptimizer):
    """A copy of an optimizer of Keras's, with its own step size and whatever else it was made
    with."""

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
            given = given.inner_optimizer  # what overflows, or is 0, in float16 is not in float32
        self.inner = _copied(given)
        # no part of its configuration
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

    def apply(self, gradients: list[Array], learning_rate: Array) -> None:
        self.inner.apply(gradients, self.trained)


def options(optimizer: keras.optimizers.Optimizer) -> JSONDict:
    """Its configuration, with a schedule or function as its learning rate as it is: Keras finds
    only registered classes by their names."""
    own, rate = vars(optimizer), optimizer._learning_rate
    if not callable(rate):
        return dict(optimizer.get_config())
    own["_learning_rate"] = None
    try:
        return {**optimizer.get_config(), "learning_rate": rate}
    finally:
        own["_learning_rate"] = rate


def _copied(given: keras.optimizers.Optimizer) -> keras.optimizers.Optimizer:
    """A new optimizer of the same kind and configuration."""
    try:
        return type(given).from_config(options(given))
    except Exception as error:  # whatever its own class raises
        kind = type(given).__name__
        raise SettingError(
            f"optimizer= is a {kind} that cannot be copied: {error}",
            "a class whose get_config returns the arguments of its __init__",
            f"define get_config in {kind}.",
        ) from error


class KerasOptimizerWrapper:
    """A user's own optimizer of Keras's: itself, not a copy."""

    def __init__(
        self, name: str, optimizer: keras.optimizers.Optimizer, weights: list[Variable]
    ) -> None:
        if not isinstance(optimizer, keras.optimizers.Optimizer):
            raise SettingError(
                f"an optimizer is a {type(optimizer).__name__}.",
                f"a Keras optimizer, since the agent uses Keras on {keras.backend.backend()}",
                "give a Keras optimizer, such as keras.optimizers.Adam().",
            )
        if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
            optimizer = optimizer.inner_optimizer
        self.name, self.inner, self._weights = name, optimizer, weights
        self.trained: list[Variable] = []
        # numbers of its that an update is given as inputs, by the names of `numbers`
        self.inputs: dict[str, Array] = {}
        self.look()
        self.variables = list(optimizer.variables)

    def look(self) -> bool:
        """Finds its weights: those that are frozen are not trained, as long as they are. Whether
        they are others now."""
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
        }:  # Keras takes in no more of them
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
        """Nothing to give back: the variables are its own."""

    def apply(self, gradients: list[Array], layout: Any = None, fine: Array = True) -> None:
        """A step against the gradients of `trained`, by its numbers or by those in `inputs`; with a
        `layout` of several devices, on all of them. fine: whether the update is."""
        own = vars(self.inner)
        before = {NUMBERS[n]: own[NUMBERS[n]] for n in self.inputs}
        own.update({NUMBERS[n]: x for n, x in self.inputs.items()})
        try:
            if layout is not None and layout.divides_rows:
                layout.apply(self.inner, gradients, self.trained, fine)
            else:
                self.inner.apply(gradients, self.trained)
        finally:
            own.update(before)

    def numbers(self, name: str) -> list[float]:
        """Its "lr", "weight_decay", "beta1" or "beta2", in a list; an empty one where it has none,
        or a schedule."""
        if name == "lr":
            rate = self.inner._learning_rate
            return [float(host(rate))] if isinstance(rate, keras.Variable) else []
        x = vars(self.inner).get(NUMBERS[name])
        return [float(x)] if isinstance(x, (int, float)) else []

    def set_numbers(self, name: str, values: list[float]) -> None:
        """Gives it that one; what is compiled sees it where it is an input, as "lr" always is."""
        (value,) = values
        if name == "lr":
            self.inner.learning_rate = value
        else:
            setattr(self.inner, NUMBERS[name], value)

    def settings(self) -> JSONDict:
        """Its class, its numbers (momenta, decay; the learning rate is among its
        variables), and how many variables it has, as JSON data."""
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
        """Takes such numbers over. ValueError where the optimizer that they are of had other
        variables."""
        if settings["variables"] != len(self.variables):
            raise ValueError(
                f"its {settings['kind']} has {settings['variables']} variables, this one "
                f"{len(self.variables)}"
            )
        for name in vars(self.inner).keys() & settings["groups"][0].keys():
            setattr(self.inner, name, settings["groups"][0][name])


def _move_into_scope(optimizer: keras.optimizers.Optimizer) -> None:
    """Recreates, in place, an optimizer that was made outside of the scope of TensorFlow's strategy
    that is entered, where its variables could not be used."""
    made_in = getattr(optimizer, "_distribution_strategy", None)  # None on JAX
    if made_in is not None and made_in is not sys.modules["tensorflow"].distribute.get_strategy():
        vars(optimizer).update(vars(type(optimizer).from_config(optimizer.get_config())))


OPTIMIZERS: dict[str, Callable[..., KerasOptimizer]] = {
    "adam": KerasAdam,
    "radam": KerasRAdam,
    "rmsprop": KerasRMSProp,
    "sgd": KerasOptimizer,
    "kept": KerasGradientRecorder,
}
