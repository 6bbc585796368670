"""Search for all variables reachable from an agent. A target network that training did not know
about would be a constant in compiled code, and missing in every checkpoint."""

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
    """Objects by their path of attributes, keys and indices ("target/actors/0"). Each object
    appears once, at the first path found."""

    # torch modules and Keras layers or models, including what they contain
    modules: dict[str, Module]
    variables: dict[str, Variable]  # other tensors and variables
    optimizers: dict[str, Any]


def reach(agent: object) -> Reached:
    """Search the attributes of an object and everything they contain: lists, tuples, dicts and
    other objects. Skips environments, functions, and objects of the standard library and of
    `CLOSED` packages."""
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
    """Return every variable by its name in the state of backends."""
    named = {
        f"network/{name}/{i}": v
        for name, module in reached.modules.items()
        for i, v in enumerate(_kept(module))
    }
    return named | {f"network/{name}/0": v for name, v in reached.variables.items()}


@contextmanager
def naming_precision(agent: object) -> Iterator[None]:
    """Turn an exception of a user's function into a NetworkError if a network does not compute in
    float32, the dtype of its inputs. The error names the network."""
    try:
        yield
    except TandemError:
        raise
    except Exception:  # each framework raises its own type
        for name, module in reach(agent).modules.items():
            if computes := getattr(module, "compute_dtype", None):  # a Keras attribute
                refuse_precision(name, "outputs", computes, "make its layers with dtype='float32'.")
            else:
                for dtype in (x.dtype for x in _variables(module) if "float" in str(x.dtype)):
                    refuse_precision(name, "weights", dtype, "call .float() on the network.")
        raise


def _kept(module: Module) -> list[Variable]:
    """Return the tensors of a torch module, or variables of a Keras layer, that files contain."""
    return (
        list(module.variables)
        if hasattr(module, "variables")
        else list(module.state_dict().values())
    )


def _variables(module: Module) -> list[Variable]:
    """Return all variables of a torch module or a Keras layer."""
    if hasattr(module, "variables"):
        return list(module.variables)
    return [*module.parameters(), *module.buffers()]


def _kinds() -> tuple[tuple[type, ...], ...]:
    """Return the classes of modules, variables and optimizers of the imported frameworks."""
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
    """Return an object's attributes if it may be searched (always if `own`)."""
    # an environment
    if not own and (_closed(type(value)) or callable(getattr(value, "step", None))):
        return []
    return list(getattr(value, "__dict__", {}).items())


def _closed(kind: type) -> bool:
    package = kind.__module__.split(".")[0]
    if kind is SimpleNamespace or kind.__module__.startswith("tandem.examples"):
        return False
    return package in CLOSED or (package in sys.stdlib_module_names and package != "__main__")
