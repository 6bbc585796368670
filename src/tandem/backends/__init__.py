"""Backends: the interface (`backend`) and its implementations for PyTorch and Keras; `make` creates
one by name. Frameworks are imported here and in `networks`; neither contains reinforcement
learning. May import lower layers, up to `replay`."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tandem.errors import EngineError, NetworkError, SettingError, UnknownNameError
from tandem.networks.users import called, is_function
from tandem.settings import named_here

if TYPE_CHECKING:
    from gymnasium import Space

    from tandem.backends.keras_frozen import FrozenModel
    from tandem.backends.sharding import Devices
    from tandem.networks.users import NetworkFunction, Networks

# name -> KERAS_BACKEND
ENGINES = {
    "torch": None,
    "tensorflow": "tensorflow",
    "jax": "jax",
    "keras-torch": "torch",
}
BY_PROCESSES = ("torch", "keras-torch")  # backends with one process per device
DEVICES = ("auto", "cpu", "cuda")
_NEEDS = {
    "torch": ("torch",),
    "tensorflow": ("keras", "tensorflow"),
    "jax": ("keras", "jax"),
    "keras-torch": ("keras", "torch"),
}


def installed() -> list[str]:
    """Return the frameworks that can be used here, fastest first."""
    order = ("jax", "tensorflow", "torch", "keras-torch")
    return [name for name in order if all(importlib.util.find_spec(m) for m in _NEEDS[name])]


def choose(framework: str | None = None) -> str:
    """Return `framework` if it can be used. Without one, return the backend that Keras already
    uses, else the fastest one installed."""
    if framework is None:
        available = installed()
        if not available:
            raise EngineError(
                "no backend is installed.",
                "one of torch, tensorflow, jax",
                "pip install 'tandem-rl[jax]'",
            )
        return next((n for n in available if ENGINES[n] and ENGINES[n] == running()), available[0])
    if not isinstance(framework, str) or framework not in ENGINES:
        raise UnknownNameError("framework", framework, ENGINES)
    missing = [m for m in _NEEDS[framework] if importlib.util.find_spec(m) is None]
    if missing:
        extra = "torch,jax" if framework == "keras-torch" else framework
        raise EngineError(
            f"framework {framework!r} needs {' and '.join(missing)}, which is not installed here.",
            f"one of the installed backends: {', '.join(installed()) or 'none'}",
            f"pip install 'tandem-rl[{extra}]'",
        )
    wanted, engine = ENGINES[framework], running()
    if wanted and engine and wanted != engine:
        raise EngineError(
            f"framework {framework!r} is not available: this process has imported Keras on "
            f"{engine}.",
            "one Keras backend per process, which Keras reads once, when it is imported",
            f"set the environment variable KERAS_BACKEND={wanted} before anything imports keras, "
            f"or use framework={next(n for n, keras in ENGINES.items() if keras == engine)!r}.",
        )
    return framework


def choose_keras(framework: str) -> str:
    """Return `framework` and make later imports of Keras use its backend. Raises EngineError if it
    cannot be used."""
    framework = choose(framework)
    if ENGINES[framework]:
        os.environ["KERAS_BACKEND"] = str(ENGINES[framework])
    return framework


def make(
    framework: str,
    device: str = "auto",
    *,
    seed: int = 0,
    threads: int = 1,
    compile: str = "no",
    updates: float = 0.0,
    compile_cache: bool = True,
    optimizer: object = None,
    devices: int = 1,
    layout: Devices | None = None,
    rank: int = 0,
) -> Any:
    """Create the backend of that name.

    `threads` is the number of threads per operation. torch only: `compile` and `compile_cache` (see
    `torch_calls`), and `updates`, the number of updates of the run. `optimizer` is a framework
    optimizer or a type; copies of it replace every optimizer that an algorithm requests. `devices`
    is the number of devices that share each update; on torch each has its own process, this one
    with `rank`, and the processes have yet to join. `layout` holds an agent's devices instead.
    """
    framework = choose_keras(framework)
    if device not in DEVICES:
        fix = "did you mean 'cuda'?" if device == "gpu" else ""
        raise UnknownNameError("device", device, DEVICES, fix)
    if threads == 1 and "jax" not in sys.modules:
        # no thread pool for small networks: see docs/contributors/design.md
        os.environ.setdefault("PJRT_NPROC", "1")
    if framework in ("torch", "keras-torch"):
        module = importlib.import_module(f"tandem.backends.{framework.replace('-', '_')}")
        backend = module.BACKEND(
            device,
            seed=seed,
            threads=threads,
            compile=compile,
            updates=updates,
            compile_cache=compile_cache,
            devices=devices,
            rank=rank,
        )
    else:
        backend = importlib.import_module("tandem.backends.keras").KerasBackend(
            device, threads=threads, devices=devices, layout=layout
        )
    backend.given_optimizer = optimizer
    return backend


def prepare(devices: int = 1) -> None:
    """Prepare for networks created without a backend: a backend reads some options only before its
    first array, such as the number of CPU devices."""
    engine = running()
    if engine == "jax":
        importlib.import_module("tandem.backends.keras_jax")
    if devices > 1 and engine in ("jax", "tensorflow"):
        devices_of(engine).make_host_devices(devices)


def devices_of(engine: str) -> ModuleType:
    """Return the module for several devices of a Keras backend: its `LAYOUT`,
    `of` a user's strategy, and `make_host_devices`."""
    return importlib.import_module(f"tandem.backends.keras_{engine}_devices")


def no_strategy(given: object, expected: str) -> SettingError:
    """Return the error for a strategy that does not specify devices."""
    return SettingError(
        f"strategy={given!r}.", expected, "leave strategy out for one device: call agent.train."
    )


def no_gpu(engine: str) -> EngineError:
    """Return the error for a backend without the requested CUDA device."""
    return EngineError(
        f"device 'cuda' is not available: {engine} finds none.",
        "a CUDA device",
        "use device='cpu' (--device cpu).",
    )


def too_few(
    engine: str, device: str, devices: int, there: int, fix: str, setting: str = "devices"
) -> EngineError:
    """Return the error for more devices than a backend has. fix: how to create CPU devices, which
    is done at startup. setting: the name that the user knows the count by."""
    if device != "cpu":
        return EngineError(
            f"{setting}={devices}, but {engine} finds {there} GPU{'s' * (there > 1)}.",
            "at most as many devices as there are",
            f"use {setting}={there}.",
        )
    return EngineError(
        f"{setting}={devices}, but {engine} has already started in this process with {there} on "
        "the CPU.",
        f"this number of devices when {engine} starts, at its first array",
        f"{fix}, or use {setting}={there}.",
    )


class Engine:
    """A Keras backend by name. Unpickling it selects that backend, before later objects in the
    pickle import Keras. devices: the number of CPU devices to create there."""

    def __init__(self, framework: str, devices: int = 1) -> None:
        self.framework, self.devices = framework, devices

    def __reduce__(self) -> tuple[object, ...]:
        return _arrived, (self.framework, self.devices)


def _arrived(framework: str, devices: int) -> Engine:
    framework = choose_keras(framework)
    if devices > 1:
        devices_of(framework).make_host_devices(devices)
    return Engine(framework, devices)


def unfrozen(engine: Engine, packed: bytes) -> FrozenModel:
    """Unpickle a `keras_frozen.FrozenModel` after its backend is selected."""
    return importlib.import_module("tandem.backends.keras_frozen").unpacked(packed)


def not_picklable(error: Exception) -> SettingError:
    """Return the error for a custom network with an attribute that cannot be pickled."""
    return SettingError(
        f"the agent's network cannot be pickled: {str(error).strip()[:300]}",
        "a network whose attributes can be pickled",
        "leave that attribute out of the network; or pass the run's folder and call "
        "tandem.load(folder, network=...) there.",
    )


def running() -> str | None:
    """Return the Keras backend of this process, or None if Keras has not been imported."""
    keras = sys.modules.get("keras")
    return keras.backend.backend() if keras is not None and hasattr(keras, "backend") else None


def named_network(path: str, framework: str | None) -> Any:
    """Return the network function of module:function. Importing its module may import Keras, which
    then uses the backend of this framework. Raises UnknownNameError if there is none."""
    if framework is not None or "KERAS_BACKEND" not in os.environ:
        choose_keras(choose(framework))
    return named_here(
        path,
        "network function",
        "MODULE:FUNCTION",
        "module:function, as in networks:body of a file networks.py in the current folder",
        accepts=lambda found: found is not None,
        offers=callable,
    )


def of_network(network: NetworkFunction | Networks | None, space: Space) -> str | None:
    """Return the framework of a custom network, or None without one. Raises NetworkError for a
    function of the observation space that does not return a network."""
    found: Any = next(iter(network.values()), None) if isinstance(network, dict) else network
    function = is_function(found)
    found = called(found, space) if function else found
    found = found[0] if isinstance(found, tuple) and found else found
    families = {base.__module__.split(".")[0] for base in type(found).__mro__}
    if "keras" in families:
        engine = sys.modules["keras"].backend.backend()
        return "keras-torch" if engine == "torch" else str(engine)
    if function and "torch" not in families:
        raise NetworkError(
            f"network= returned a {type(found).__name__}.",
            "a torch.nn.Module or a Keras model, or a pair of them for actor and critic",
            "return one from the function.",
        )
    return "torch" if "torch" in families else None
