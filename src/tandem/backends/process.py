"""Process-wide framework settings: torch's threads, flushing of denormal numbers and generators,
and the default precision of torch and Keras. A run has its own; afterwards the calling program's
settings are restored."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tandem.backends.backend import Backend

Settings = dict[str, Any]
STATE = "keras.src.backend.common.global_state"
AUTOCAST = "cpu", "cuda"  # device types
OF_THREADS = "flushes", "autocast"  # settings that each thread has


class _Thread(threading.local):
    backend: Backend | None = None  # the backend whose settings this thread uses


_thread, _lock = _Thread(), threading.Lock()
# for each active `restored` in any thread, the settings before the first of them
_outermost: list[Settings] = []
_at_import: Settings = {}  # settings of frameworks imported within


def begin(backend: Backend) -> None:
    """Mark the process's settings as this backend's. A backend calls it before it changes
    settings."""
    _at_import.update({n: x for n, x in _read().items() if n not in _at_import})
    _thread.backend = backend


@contextmanager
def restored(backend: Backend | None = None) -> Iterator[None]:
    """Restore the process's settings at the end of the block. If runs in several threads overlap,
    the last to end restores the settings before the first. Within the block, the settings are those
    of `backend`, or of a backend created there."""
    outer = _thread.backend
    if backend is not None and outer is backend:
        yield
        return
    before = _read()
    with _lock:
        _outermost.append(_outermost[0] if _outermost else before)
    _thread.backend = backend
    try:
        if backend is not None:
            backend.enter_process()
        yield
    finally:
        if _thread.backend is not None:
            _thread.backend.leave_process()
        _thread.backend = outer
        with _lock:
            first = _outermost.pop()
            mine = {n: before[n] for n in OF_THREADS if n in before}
            _write(_at_import | (before if _outermost else first) | mine)


def within(method: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    """Run a generator method with the settings of `self.backend`. Between its items the process has
    its own settings."""

    @wraps(method)
    def generator(self: Any, *arguments: object, **named: object) -> Iterator[Any]:
        source: Any = method(self, *arguments, **named)
        try:
            while True:
                with restored(self.backend):
                    item = next(source, generator)
                if item is generator:
                    return
                yield item
        finally:
            with restored(self.backend):
                source.close()

    return generator


def use_float32() -> None:
    """Make float32 the default of the imported frameworks, without autocast."""
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_default_dtype(torch.float32)
        for kind in AUTOCAST:
            torch.set_autocast_enabled(kind, False)
    _set_keras("float32", None)


def is_float32() -> bool:
    """True if the process has the settings of `use_float32`."""
    torch, keras = sys.modules.get("torch"), sys.modules.get("keras")
    return (keras is None or keras.config.floatx() == "float32") and (
        torch is None
        or (
            torch.get_default_dtype() is torch.float32
            and not any(map(torch.is_autocast_enabled, AUTOCAST))
        )
    )


def _read() -> Settings:
    settings: Settings = {"flushes": sys.float_info.min / 2 == 0.0}
    torch: Any = sys.modules.get("torch")
    keras: Any = sys.modules.get("keras")
    if hasattr(torch, "get_rng_state"):  # missing while torch is being imported
        settings["torch"] = torch.get_num_threads(), torch.get_default_dtype()
        settings["generator"] = torch.get_rng_state()
        settings["autocast"] = {kind: torch.is_autocast_enabled(kind) for kind in AUTOCAST}
        if torch.cuda.is_initialized():
            settings["cuda"] = torch.cuda.get_rng_state_all(), torch.cuda.current_device()
    if hasattr(keras, "config"):
        policy = sys.modules[STATE].get_global_attribute("dtype_policy")  # None: not set yet
        settings["keras"] = keras.config.floatx(), policy
    return settings


def _write(settings: Settings) -> None:
    if "torch" in settings:
        torch = sys.modules["torch"]
        threads, dtype = settings["torch"]
        torch.set_num_threads(threads)
        torch.set_default_dtype(dtype)
        torch.set_flush_denormal(settings["flushes"])
        torch.set_rng_state(settings["generator"])
        for kind, enabled in settings["autocast"].items():
            torch.set_autocast_enabled(kind, enabled)
        if "cuda" in settings:
            states, device = settings["cuda"]
            torch.cuda.set_rng_state_all(states)
            torch.cuda.set_device(device)
    if "keras" in settings:
        _set_keras(*settings["keras"])


def _set_keras(floatx: str, policy: object) -> None:
    if hasattr(keras := sys.modules.get("keras"), "config"):  # a test may remove it
        keras.config.set_floatx(floatx)  # type: ignore[union-attr]
        sys.modules[STATE].set_global_attribute("dtype_policy", policy)
