"""Pickles of objects that hold Keras's: layers and models, their variables, optimizers, metrics.
What was one variable is one variable where the pickle is read. The pickle holds no code of Keras's
models: their classes are found by their import path."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import cloudpickle
import keras
import numpy as np

from tandem.backends import ENGINES, Engine
from tandem.backends.keras_frozen import _own_classes
from tandem.backends.reach import reach
from tandem.backends.variables import host, read
from tandem.errors import SettingError
from tandem.types import AnyArray, Variable

Reduced = tuple[Callable[..., Any], tuple[Any, ...]]


def packed(agent: object, *values: object) -> bytes:
    """Returns an agent, and what else belongs to it, as a pickle, to be read where Keras runs on
    the same engine. SettingError where two of its layers or models share a variable, TypeError for
    a layer whose class cannot be imported."""
    file = io.BytesIO()
    _Pickler(file, reach(agent).modules).dump((agent, *values))
    return file.getvalue()


def engine(devices: int = 1) -> Engine:
    """Returns the engine of this process, with so many devices where it arrives."""
    running = keras.backend.backend()
    return Engine(next(name for name, engine in ENGINES.items() if engine == running), devices)


class _Pickler(cloudpickle.Pickler):
    def __init__(self, file: io.BytesIO, modules: dict[str, Any]) -> None:
        super().__init__(file)
        roots = _roots(modules)
        self._roots = {id(root) for root in roots.values()}
        self._inner = {
            id(layer): (root, i)
            for root in roots.values()
            for i, layer in enumerate(root._flatten_layers(include_self=False))
        }
        self._variables: dict[int, tuple[Any, int]] = {}
        for name, root in roots.items():
            for i, variable in enumerate(root.variables):
                if id(variable) in self._variables:
                    raise SettingError(
                        f"the agent's {name} shares a variable with another of its networks.",
                        "networks that share none, to take them to another process",
                        "hold shared layers in one model, and the others as parts of it.",
                    )
                self._variables[id(variable)] = root, i

    def reducer_override(self, value: Any) -> Any:
        """How an object of Keras's is pickled; the others as cloudpickle does it."""
        if isinstance(value, keras.Layer):
            if id(value) in self._inner and id(value) not in self._roots:
                return _layer_of, self._inner[id(value)]
            return _reduced_layer(value)
        if isinstance(value, keras.Variable):
            if id(value) in self._variables:
                return _variable_of, self._variables[id(value)]
            return _variable, (np.array(host(value)), value.trainable, value.dtype, value.name)
        if isinstance(value, keras.optimizers.Optimizer):
            return _reduced_optimizer(value)
        if isinstance(value, keras.Metric):
            return _metric, (type(value), value.get_config(), _values(value.variables))
        if isinstance(value, keras.random.SeedGenerator):
            return _generator, (value.get_config(), np.array(host(value.state)))
        return super().reducer_override(value)


def _roots(modules: dict[str, Any]) -> dict[str, Any]:
    """Returns those that are no part of another."""
    parts = {
        id(layer)
        for module in modules.values()
        for layer in module._flatten_layers(include_self=False)
    }
    return {name: module for name, module in modules.items() if id(module) not in parts}


def _reduced_layer(layer: Any) -> Reduced:
    own = _own_classes(layer)
    config = keras.saving.serialize_keras_object(layer)
    made = _layer(own, config, None)
    shapes = [[tuple(v.shape) for v in x.variables] for x in (made, layer)]
    if layer.built and shapes[0] != shapes[1]:
        raise TypeError(
            f"{type(layer).__name__} comes out of its get_config() with variables of the shapes "
            f"{shapes[0]}, not {shapes[1]}"
        )
    return _layer, (own, config, _values(layer.variables) if layer.built else None)


def _reduced_optimizer(optimizer: Any) -> Reduced:
    trained = list(optimizer._trainable_variables) if optimizer.built else None
    values = _values(optimizer.variables) if optimizer.built else []
    return _optimizer, (type(optimizer), optimizer.get_config(), trained, values)


def _values(variables: list[Variable]) -> list[AnyArray]:
    return read(variables)


# What pickles call where they are read


def _layer(own: list[type], config: Any, values: list[AnyArray] | None) -> Any:
    by_name = {kind.__name__: kind for kind in own}
    layer = keras.saving.deserialize_keras_object(config, custom_objects=by_name, safe_mode=False)
    if values is not None:
        _assign(layer.variables, values)
    return layer


def _layer_of(root: Any, i: int) -> Any:
    return list(root._flatten_layers(include_self=False))[i]


def _variable_of(root: Any, i: int) -> Any:
    return root.variables[i]


def _variable(value: AnyArray, trainable: bool, dtype: str, name: str) -> Any:
    return keras.Variable(value, trainable=trainable, dtype=dtype, name=name)


def _optimizer(kind: Any, config: Any, trained: Any, values: list[AnyArray]) -> Any:
    optimizer = kind.from_config(config)
    if trained is not None:
        optimizer.build(trained)
        _assign(optimizer.variables, values)
    return optimizer


def _metric(kind: Any, config: Any, values: list[AnyArray]) -> Any:
    metric = kind.from_config(config)
    _assign(metric.variables, values)
    return metric


def _generator(config: Any, state: AnyArray) -> Any:
    generator = keras.random.SeedGenerator.from_config(config)
    generator.state.assign(state)
    return generator


def _assign(variables: list[Variable], values: list[AnyArray]) -> None:
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
