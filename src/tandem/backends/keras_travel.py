"""Pickling of objects that contain Keras layers, models, optimizers, metrics and variables. They
are pickled like other Python objects, so a model needs no get_config. Classes that cannot be
imported are pickled by value."""

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
MADE_ANEW = ("build", "quantize")  # methods that a layer wraps on creation
OF_SCOPES = ("_distribute_strategy",)  # TensorFlow's, cannot be pickled
OF_VARIABLES = ("_constraint", "_regularizer", "_path", "_autocast", "_aggregation")


def packed(*values: object) -> bytes:
    """Pickle values, to be unpickled where Keras uses the same backend."""
    file = io.BytesIO()
    _Pickler(file).dump(values)
    return file.getvalue()


def engine(devices: int = 1) -> Engine:
    """Return the backend of this process, with this number of devices where it is unpickled."""
    running = keras.backend.backend()
    return Engine(next(name for name, engine in ENGINES.items() if engine == running), devices)


class _Pickler(cloudpickle.Pickler):
    def reducer_override(self, value: Any) -> object:
        """Return how to pickle a Keras object; other objects as in cloudpickle."""
        kind = type(value)
        if isinstance(value, keras.optimizers.Optimizer):  # refers to variables by their ids
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
        # on torch a model also holds the tensors, which must stay identical to the variables'
        if isinstance(value, keras.Variable) and keras.backend.backend() != "torch":
            state = {n: x for n, x in vars(value).items() if n in OF_VARIABLES}
            made = np.array(host(value)), value.trainable, value.dtype, value.name
            return _variable, made, (state, ()), None, None, _fill
        return super().reducer_override(value)


# Functions called during unpickling


def _bare(kind: type[object]) -> object:
    return kind.__new__(kind)


def _fill(value: object, content: tuple[dict[str, object], object]) -> None:
    state, items = content
    vars(value).update(state)
    if isinstance(value, (list, dict, set)):
        base = next(kind for kind in (list, dict, set) if isinstance(value, kind))
        getattr(base, "extend" if base is list else "update")(value, items)  # without tracking


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
