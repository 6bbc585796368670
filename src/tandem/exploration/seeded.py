"""Objects with their own random generator, whose state can be saved."""

from __future__ import annotations

from typing import Any

import numpy as np

from tandem.types import JSONDict

Seed = int | np.random.Generator | None


class Seeded:
    """Base class of objects with their own NumPy generator `rng`. seed: its seed, or a generator to
    share; `seeded` is False without one."""

    def __init__(self, seed: Seed = None) -> None:
        self.rng, self.seeded = np.random.default_rng(seed), seed is not None

    def state(self) -> JSONDict:
        """Return the random state as JSON data."""
        return {"rng": self.rng.bit_generator.state}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore the result of `state`."""
        self.rng.bit_generator.state = state["rng"]
