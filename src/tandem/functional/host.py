"""Where functional environments are stepped: on the processor, beside whatever learns.

JAX reads how many threads it has, how much of a GPU it takes for itself, and how many devices a
processor is, when it makes its first array; so this is asked before anything here imports it.
"""

from __future__ import annotations

import os
import sys
from contextlib import AbstractContextManager, suppress

from tandem.errors import EngineError

_threads, _devices = 1, 1


def expect(threads: int, devices: int) -> None:
    """How many threads one operation of JAX may have in this process, and how many devices a run
    may want of it that are parts of the processor, if it has not begun."""
    global _threads, _devices
    _threads, _devices = threads, devices


def prepare() -> None:
    """Before JAX is imported for environments: one thread, unless a run has said otherwise, as
    operations on N small states are quicker so; and no GPU is taken in advance, on which another
    framework may learn. The processor becomes as many devices as the run wants to learn on."""
    is_first = "jax" not in sys.modules
    if is_first and _threads == 1:
        os.environ.setdefault("PJRT_NPROC", "1")
    if is_first:
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax

    if is_first:  # handing each step over to another thread takes longer than the step
        jax.config.update("jax_cpu_enable_async_dispatch", False)
    said = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if not said and jax.config.jax_num_cpu_devices < _devices:
        with suppress(RuntimeError):  # it has started: whoever learns on them says so
            jax.config.update("jax_num_cpu_devices", _devices)


def processor() -> AbstractContextManager[object]:
    """Whatever is computed within is computed on the processor. EngineError where JAX was told to
    do without."""
    import jax

    try:
        return jax.default_device(jax.devices("cpu")[0])
    except RuntimeError as error:
        raise EngineError(
            f"JAX has no CPU device (JAX_PLATFORMS={os.environ.get('JAX_PLATFORMS', '')}): {error}",
            "cpu among JAX's platforms, since functional environments run on it",
            "set JAX_PLATFORMS=cuda,cpu, or leave it out.",
        ) from error
