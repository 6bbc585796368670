"""All variables that can be reached from an agent: a target network that training did not know of
would be a constant in compiled code, and missing in every checkpoint."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType, ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from tandem.errors import TandemError
from tandem.networks.users import refuse_precision
from tandem.types import Array, Variable

if TYPE_CHECKING:
    from tandem.networks.users import Module

CLOSED = {
    "gym",
    "gymnasium",
    "jax",
    "jaxlib",
    "keras",
    "matplotlib",
    "numpy",
    "pettingzoo",
    "ray",
    "tandem",
    "tensorflow",
    "torch",
}


class Reached(NamedTuple):
    """Objects by their path of attributes, keys and numbers ("target/actors/0"); each object
    once, where it was first."""

    # torch modules and Keras layers or models; what is inside of them is theirs
    modules: dict[str, Module]
    variables: dict[str, Variable]  # tensors and variables beside them
    optimizers: dict[str, Any]


def reach(agent: object) -> Reached:
    """Looks through the attributes of an object, and of what they hold: lists, tuples, dicts and
    other objects. Environments, functions, and what Python's own library and those that are
    `CLOSED` made are left alone."""
    reached, seen = Reached({}, {}, {}), {id(agent)}
    kinds = _kinds()

    def visit(value: Array, path: str) -> None:
        if id(value) in seen or isinstance(
            value, (str, bytes, int, float, type, FunctionType, ModuleType, type(None))
        ):
            return
        seen.add(id(value))
        for kind, into in zip(kinds, reached, strict=True):
            if isinstance(value, kind):
                into[path] = value
                return
        if isinstance(value, dict):
            children = [(str(k), v) for k, v in value.items()]
        elif isinstance(value, (list, tuple)):
            children = [(str(i), v) for i, v in enumerate(value)]
        else:
            children = _attributes(value)
        for name, child in children:
            visit(child, f"{path}/{name}" if path else name)

    for name, value in _attributes(agent, own=True):
        visit(value, name)
    inside = {id(v) for module in reached.modules.values() for v in _variables(module)}
    return reached._replace(
        variables={n: v for n, v in reached.variables.items() if id(v) not in inside}
    )


def held(reached: Reached) -> dict[str, Variable]:
    """Every variable by the name that engines give it in their state."""
    named = {
        f"network/{name}/{i}": v
        for name, module in reached.modules.items()
        for i, v in enumerate(_kept(module))
    }
    return named | {f"network/{name}/0": v for name, v in reached.variables.items()}


@contextmanager
def naming_precision(agent: object) -> Iterator[None]:
    """Turn an exception of a user's function into a NetworkError that names the network which does
    not compute in float32, as its inputs are, if there is one."""
    try:
        yield
    except TandemError:
        raise
    except Exception:  # each framework has its own
        for name, module in reach(agent).modules.items():
            if computes := getattr(module, "compute_dtype", None):  # of Keras's
                refuse_precision(name, "outputs", computes, "make its layers with dtype='float32'.")
            else:
                for dtype in (x.dtype for x in _variables(module) if "float" in str(x.dtype)):
                    refuse_precision(name, "weights", dtype, "call .float() on the network.")
        raise


def _kept(module: Module) -> list[Variable]:
    """The tensors of a torch module, or variables of a Keras layer, that files hold."""
    return (
        list(module.variables)
        if hasattr(module, "variables")
        else list(module.state_dict().values())
    )


def _variables(module: Module) -> list[Variable]:
    """All that a torch module or a Keras layer holds."""
    if hasattr(module, "variables"):
        return list(module.variables)
    return [*module.parameters(), *module.buffers()]


def _kinds() -> tuple[tuple[type, ...], ...]:
    """The classes of modules, variables and optimizers, of the frameworks that were imported."""
    kinds: list[tuple[type, type, type]] = []
    if (torch := sys.modules.get("torch")) is not None:
        kinds.append((torch.nn.Module, torch.Tensor, torch.optim.Optimizer))
    if (keras := sys.modules.get("keras")) is not None:
        kinds.append((keras.Layer, keras.Variable, keras.optimizers.Optimizer))
    modules, variables, optimizers = (tuple(kind[i] for kind in kinds) for i in range(3))
    if (tensorflow := sys.modules.get("tensorflow")) is not None:
        variables = (*variables, tensorflow.Variable)
    return modules, variables, optimizers


def _attributes(value: Array, own: bool = False) -> list[tuple[str, object]]:
    """An object's attributes, if it may be looked into (`own`: it may)."""
    # an environment
    if not own and (_closed(type(value)) or callable(getattr(value, "step", None))):
        return []
    return list(getattr(value, "__dict__", {}).items())


def _closed(kind: type) -> bool:
    package = kind.__module__.split(".")[0]
    if kind is SimpleNamespace or kind.__module__.startswith("tandem.examples"):
        return False
    return package in CLOSED or (package in sys.stdlib_module_names and package != "__main__")
