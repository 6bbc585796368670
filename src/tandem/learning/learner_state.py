"""Saved state of a learner: its algorithm's memory, the ring and the sampler."""

from __future__ import annotations

from typing import Any

import numpy as np

from tandem.replay.buffer import Ring
from tandem.types import Array, JSONDict


def carried(algorithm: Any) -> dict[str, Array]:
    """Return the arrays that an algorithm carries from one block to the next."""
    memory = algorithm.memory
    if isinstance(memory, dict):
        return {f"memory/{n}": np.array(x) for n, x in memory.items()}
    return {} if isinstance(memory, tuple) else {"memory": memory.copy()}


def load_carried(algorithm: Any, arrays: dict[str, Array]) -> None:
    """Restore the arrays from `carried`."""
    if isinstance(algorithm.memory, dict):
        algorithm.memory = {n: arrays[f"memory/{n}"].copy() for n in algorithm.memory}
    elif not isinstance(algorithm.memory, tuple):
        algorithm.memory = arrays["memory"].copy()


def stored(ring: Ring, sampler: Any) -> tuple[JSONDict, dict[str, Array]]:
    """Return the combined state of a ring and its sampler."""
    data: JSONDict = {}
    arrays: dict[str, Array] = {}
    for name, part in (("ring", ring), ("sampler", sampler)):
        data[name], inner = part.state()
        arrays |= {f"{name}/{n}": x for n, x in inner.items()}
    return data, arrays


def load_stored(ring: Ring, sampler: Any, data: JSONDict, arrays: dict[str, Array]) -> None:
    """Restore the state from `stored`."""
    for name, part in (("ring", ring), ("sampler", sampler)):
        part.load_state(
            data[name],
            {n.removeprefix(f"{name}/"): x for n, x in arrays.items() if n.startswith(f"{name}/")},
        )
