"""Objects with a random generator of their own that can be saved."""

from __future__ import annotations

from typing import Any

import numpy as np

from tandem.types import JSONDict

Seed = int | np.random.Generator | None


class Seeded:
    """`rng` is its NumPy generator. seed: of that, or a generator to share; `seeded` says whether
    there was one."""

    def __init__(self, seed: Seed = None) -> None:
        self.rng, self.seeded = np.random.default_rng(seed), seed is not None

    def state(self) -> JSONDict:
        """All that comes next depends on, as JSON data."""
        return {"rng": self.rng.bit_generator.state}

    def load_state(self, state: dict[str, Any]) -> None:
        """Goes on from what `state` gave."""
        self.rng.bit_generator.state = state["rng"]
