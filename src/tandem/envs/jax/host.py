"""JAX configuration for functional environments, which are stepped on the CPU next to the learner.

JAX reads the number of threads, the GPU memory to preallocate, and the number of CPU devices when
it makes its first array, so these must be set before tandem imports it.
"""

from __future__ import annotations

import os
import sys
from contextlib import AbstractContextManager, suppress

from tandem.errors import EngineError

_threads, _devices = 1, 1


def expect(threads: int, devices: int) -> None:
    """Set the number of threads per JAX operation in this process, and the number of CPU devices
    that a run may need. Both take effect only before JAX starts."""
    global _threads, _devices
    _threads, _devices = threads, devices


def prepare() -> None:
    """Configure JAX before it is imported for environments. It uses one thread unless a run has
    set another number, since that is faster for operations on N small states. It does not
    preallocate GPU memory, which another framework may need for learning. The CPU is split into
    as many devices as the run learns on."""
    is_first = "jax" not in sys.modules
    if is_first and _threads == 1:
        os.environ.setdefault("PJRT_NPROC", "1")
    if is_first:
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax  # environments of other kinds do not need it

    if is_first:  # dispatching a step to another thread takes longer than the step
        jax.config.update("jax_cpu_enable_async_dispatch", False)
    said = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if not said and jax.config.jax_num_cpu_devices < _devices:
        with suppress(RuntimeError):  # JAX has started; the learner reports missing devices
            jax.config.update("jax_num_cpu_devices", _devices)


def processor() -> AbstractContextManager[object]:
    """Return a context manager in which JAX computes on the CPU. Raises EngineError if JAX is
    configured without a CPU device."""
    import jax  # environments of other kinds do not need it

    try:
        return jax.default_device(jax.devices("cpu")[0])
    except RuntimeError as error:
        raise EngineError(
            f"JAX has no CPU device (JAX_PLATFORMS={os.environ.get('JAX_PLATFORMS', '')}): {error}",
            "cpu among JAX's platforms, since functional environments run on it",
            "set JAX_PLATFORMS=cuda,cpu, or leave it out.",
        ) from error
