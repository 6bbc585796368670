"""Pickles of objects that hold Keras's: layers, models, optimizers, metrics and their variables.
They are taken apart as other objects of Python are, so a model needs no get_config. Classes that
cannot be imported travel by value."""

from __future__ import annotations

import io
from typing import Any

import cloudpickle
import keras
import numpy as np

from tandem.backends import ENGINES, Engine
from tandem.backends.keras_optimizers import options
from tandem.backends.variables import host, read
from tandem.types import AnyArray, JSONDict

SAVEABLE = next(kind for kind in keras.Layer.__mro__ if kind.__name__ == "KerasSaveable")
MADE_ANEW = ("build", "quantize")  # what a layer wraps when it is created
OF_SCOPES = ("_distribute_strategy",)  # TensorFlow's, which cannot travel
OF_VARIABLES = ("_constraint", "_regularizer", "_path", "_autocast", "_aggregation")


def packed(*values: object) -> bytes:
    """Returns values as a pickle, to be read where Keras runs on the same engine."""
    file = io.BytesIO()
    _Pickler(file).dump(values)
    return file.getvalue()


def engine(devices: int = 1) -> Engine:
    """Returns the engine of this process, with so many devices where it arrives."""
    running = keras.backend.backend()
    return Engine(next(name for name, engine in ENGINES.items() if engine == running), devices)


class _Pickler(cloudpickle.Pickler):
    def reducer_override(self, value: Any) -> object:
        """How an object of Keras's is pickled; the others as cloudpickle does it."""
        kind = type(value)
        if isinstance(value, keras.optimizers.Optimizer):  # knows variables by their addresses
            trained = list(value._trainable_variables) if value.built else None
            values = read(value.variables) if value.built else []
            return _optimizer, (kind, options(value), trained, values)
        if isinstance(value, SAVEABLE):
            state = {n: x for n, x in vars(value).items() if n not in MADE_ANEW}
            state |= {n: None for n in OF_SCOPES if n in state}
            return _bare, (kind,), (state, ()), None, None, _fill
        if kind.__module__.endswith("utils.tracking") and isinstance(value, (list, dict, set)):
            items = dict(value) if isinstance(value, dict) else list(value)
            return _bare, (kind,), (vars(value), items), None, None, _fill
        # on torch a model holds their tensors, too, and both are to stay the same
        if isinstance(value, keras.Variable) and keras.backend.backend() != "torch":
            state = {n: x for n, x in vars(value).items() if n in OF_VARIABLES}
            made = np.array(host(value)), value.trainable, value.dtype, value.name
            return _variable, made, (state, ()), None, None, _fill
        return super().reducer_override(value)


# Functions that pickles call where they are read


def _bare(kind: type[object]) -> object:
    return kind.__new__(kind)


def _fill(value: object, content: tuple[dict[str, object], object]) -> None:
    state, items = content
    vars(value).update(state)
    if isinstance(value, (list, dict, set)):
        base = next(kind for kind in (list, dict, set) if isinstance(value, kind))
        getattr(base, "extend" if base is list else "update")(value, items)  # which track nothing


def _variable(value: AnyArray, trainable: bool, dtype: str, name: str) -> keras.Variable:
    return keras.Variable(value, trainable=trainable, dtype=dtype, name=name)


def _optimizer(
    kind: type[keras.optimizers.Optimizer],
    config: JSONDict,
    trained: list[keras.Variable] | None,
    values: list[AnyArray],
) -> keras.optimizers.Optimizer:
    optimizer = kind.from_config(config)
    if trained is not None:
        optimizer.build(trained)
        for variable, x in zip(optimizer.variables, values, strict=True):
            variable.assign(x)
    return optimizer
