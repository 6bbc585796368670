"""Where functional environments are stepped: on the processor, beside whatever learns.

JAX reads how many threads it has, and how much of a GPU it takes for itself, when it makes its
first array; so this is asked before anything here imports it.
"""

from __future__ import annotations

import os
import sys
from contextlib import AbstractContextManager
from typing import Any

from tandem.errors import EngineError

_threads = 1


def set_threads(threads: int) -> None:
    """How many threads one operation of JAX may have in this process, if it has not begun."""
    global _threads
    _threads = threads


def prepare() -> None:
    """Before JAX is imported for environments: one thread, unless a run has said otherwise, as
    operations on N small states are quicker so; and no GPU is taken in advance, on which another
    framework may learn."""
    if "jax" in sys.modules:
        return
    if _threads == 1:
        os.environ.setdefault("PJRT_NPROC", "1")
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax

    # handing each step over to another thread takes longer than the step
    jax.config.update("jax_cpu_enable_async_dispatch", False)


def processor() -> AbstractContextManager[Any]:
    """Whatever is computed within is computed on the processor. EngineError where JAX was told to
    do without."""
    import jax

    try:
        return jax.default_device(jax.devices("cpu")[0])  # type: ignore[no-any-return]
    except RuntimeError as error:
        raise EngineError(
            f"JAX has no processor here (JAX_PLATFORMS={os.environ.get('JAX_PLATFORMS', '')}): "
            f"{error}",
            "the processor among JAX's platforms: functional environments are stepped there",
            "set JAX_PLATFORMS=cuda,cpu, or leave it out.",
        ) from error
