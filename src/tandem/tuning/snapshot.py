"""An in-memory copy of everything reachable from an agent that training may change. It is restored
in place: objects keep their identity."""

from __future__ import annotations

import copy
import random
import sys
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from tandem.agents.reach import CLOSED
from tandem.backends.variables import host
from tandem.types import Array, Variable

if TYPE_CHECKING:
    from tandem.networks.users import Module

PLAIN = (
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    range,
    type,
    FunctionType,
    BuiltinFunctionType,
    MethodType,
    ModuleType,
)
OPENED = ("tandem.exploration", "tandem.examples")  # tandem modules with objects of the user
Undo = Callable[[], None]


class Snapshot:
    """Variables, optimizers, metrics, generators, arrays, and the attributes of the user's objects,
    including those in lists and dicts; without environments and objects of libraries.

    roots: where to start. The process-wide random generators (Python's, NumPy's, torch's) are saved
    too.
    """

    def __init__(self, *roots: object) -> None:
        self._undo: list[Undo] = []
        self._seen: dict[int, object] = {}  # by id; referenced, so that no id is reused
        for root in roots:
            self._visit(root, own=True)
        self._undo += _process_generators()

    def restore(self) -> None:
        """Restore everything. Can be called repeatedly."""
        for undo in self._undo:
            undo()

    def _visit(self, value: object, own: bool = False) -> None:
        if isinstance(value, PLAIN) or id(value) in self._seen:
            return
        self._seen[id(value)] = value
        if isinstance(value, (dict, list, deque, set, bytearray)):
            self._undo.append(_refilled(value))
            inside = value.values() if isinstance(value, dict) else value
            children = [] if isinstance(value, (set, bytearray)) else list(inside)
        elif isinstance(value, (tuple, frozenset)):
            children = list(value)
        elif (undo := _known(value)) is not None:
            self._undo.append(undo)
            children = _inside(value)
        elif own or _is_users(value):
            self._undo.append(_refilled(vars(value)))
            children = list(vars(value).values())
        else:
            return
        for child in children:
            self._visit(child)


def _is_users(value: object) -> bool:
    """True if an object's attributes belong to the user, not to a library or an environment."""
    kind = type(value)
    if not hasattr(value, "__dict__") or callable(getattr(value, "step", None)):
        return False
    if kind.__module__.startswith(OPENED):
        return True
    package = kind.__module__.split(".")[0]
    if kind.__module__ == "types":  # SimpleNamespace
        return True
    return package not in CLOSED and (
        package == "__main__" or package not in sys.stdlib_module_names
    )


def _known(value: object) -> Undo | None:
    """Return how to restore an array, a generator, or a framework object; None for others."""
    if isinstance(value, np.ndarray):
        if not value.flags.writeable:
            return lambda: None
        return _called(partial(np.copyto, value), value.copy())
    if isinstance(value, np.random.Generator):
        bits, state = value.bit_generator, copy.deepcopy(value.bit_generator.state)
        return lambda: setattr(bits, "state", state)
    if isinstance(value, np.random.RandomState):
        return _called(value.set_state, value.get_state())
    if isinstance(value, random.Random):
        return _called(value.setstate, value.getstate())
    for find in (_of_torch, _of_keras):
        if (undo := find(value)) is not None:
            return undo
    return None


def _inside(value: object) -> list[object]:
    """Return the attributes of a user's module to visit; [] for other objects."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.nn.Module):
        return [x for module in value.modules() for x in _own_attributes(torch, module).values()]
    return []


def _own_attributes(torch: ModuleType, module: object) -> dict[str, object]:
    """Return the attributes of a torch module that its base class `Module` does not define."""
    common = vars(torch.nn.Module()).keys()
    return {name: x for name, x in vars(module).items() if name not in common}


# Python


def _refilled(value: Any) -> Undo:
    mapping = isinstance(value, dict)
    saved = dict(value) if mapping else list(value)

    def undo() -> None:
        value.clear()
        value.update(saved) if mapping or isinstance(value, set) else value.extend(saved)

    return undo


def _called(function: Callable[..., object], state: object) -> Undo:
    return lambda: (function(state), None)[1]


def _process_generators() -> list[Undo]:
    undo = [
        _called(random.setstate, random.getstate()),
        # saved, not sampled from
        _called(np.random.set_state, np.random.get_state()),  # noqa: NPY002
    ]
    if (torch := sys.modules.get("torch")) is not None:
        undo.append(_called(torch.set_rng_state, torch.get_rng_state()))
        if torch.cuda.is_available():
            undo.append(_called(torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all()))
    return undo


# PyTorch


def _of_torch(value: object) -> Undo | None:
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    if isinstance(value, torch.nn.Module):
        return _module(torch, value)
    if isinstance(value, torch.Tensor):
        return _tensor(torch, value)
    if isinstance(value, torch.optim.Optimizer):
        return _torch_optimizer(torch, value)
    if isinstance(value, torch.Generator):
        return _called(value.set_state, value.get_state())
    if isinstance(value, torch.optim.lr_scheduler.LRScheduler):
        return _refilled(vars(value))
    return None


def _tensor(torch: ModuleType, value: Array) -> Undo:
    saved, gradient = value.detach().clone(), value.grad if value.is_leaf else None

    def undo() -> None:
        with torch.no_grad():
            value.copy_(saved)
        if value.is_leaf and value.requires_grad:
            value.grad = gradient

    return undo


def _module(torch: ModuleType, value: Module) -> Undo:
    """Save its parameters, buffers, attributes, and the training mode of its parts."""
    tensors = [_tensor(torch, x) for x in (*value.parameters(), *value.buffers())]
    parts = [
        (module, {"training": module.training, **_own_attributes(torch, module)})
        for module in value.modules()
    ]

    def undo() -> None:
        for tensor in tensors:
            tensor()
        for module, attributes in parts:
            vars(module).update(attributes)

    return undo


def _torch_optimizer(torch: ModuleType, value: Any) -> Undo:
    """Save its state, and the settings of its groups."""

    def kept(x: Array) -> Array:
        return x.detach().clone() if isinstance(x, torch.Tensor) else copy.deepcopy(x)

    groups = [
        (g, {n: list(x) if n == "params" else kept(x) for n, x in g.items()})
        for g in value.param_groups
    ]
    state = {p: {n: kept(x) for n, x in s.items()} for p, s in value.state.items()}
    attributes = _refilled(vars(value))  # of a user-defined optimizer

    def undo() -> None:
        attributes()
        for group, saved in groups:
            group.clear()
            group.update({n: list(x) if n == "params" else kept(x) for n, x in saved.items()})
        value.param_groups[:] = [group for group, _ in groups]
        value.state.clear()
        for p, s in state.items():
            value.state[p] = {n: kept(x) for n, x in s.items()}

    return undo


# Keras


def _of_keras(value: object) -> Undo | None:
    keras, tensorflow = sys.modules.get("keras"), sys.modules.get("tensorflow")
    if tensorflow is not None and isinstance(value, tensorflow.Variable):
        return _called(value.assign, value.numpy())
    if keras is None or not hasattr(keras, "Variable"):
        return None
    if isinstance(value, keras.Variable):
        return _variables([value])
    if isinstance(value, keras.random.SeedGenerator):
        return _variables([value.state])
    if isinstance(value, (keras.Layer, keras.Metric)):
        return _variables(value.variables)
    if isinstance(value, keras.optimizers.Optimizer):
        variables = _variables(value.variables)
        # once built, it stays built
        numbers = {
            n: x
            for n, x in vars(value).items()
            if isinstance(x, (bool, int, float)) and n != "built"
        }

        def undo() -> None:
            variables()
            vars(value).update(numbers)

        return undo
    return None


def _variables(variables: Iterable[Variable]) -> Undo:
    saved = [(v, np.array(host(v), copy=True)) for v in variables]

    def undo() -> None:
        for v, x in saved:
            v.assign(x)

    return undo


# Objects that must be built before they can be saved


def is_unbuilt(value: object) -> bool:
    """True if a Keras layer, model or optimizer has no variables yet; the first training creates
    them."""
    return getattr(value, "built", True) is False
