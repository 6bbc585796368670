"""Independent, named random number streams from one seed, so that a new stream does not change the
others."""

from __future__ import annotations

import numpy as np

from tandem.types import JSONDict


class Generators:
    """NumPy generators by name, created on first use, and saved and restored together."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._generators: dict[str, np.random.Generator] = {}

    def __call__(self, name: str) -> np.random.Generator:
        if name not in self._generators:
            self._generators[name] = np.random.Generator(
                np.random.PCG64(np.random.SeedSequence((self.seed, *name.encode())))
            )
        return self._generators[name]

    def state(self) -> JSONDict:
        """Return the states of all generators as JSON data."""
        return {name: g.bit_generator.state for name, g in self._generators.items()}

    def load_state(self, state: JSONDict) -> None:
        for name, inner in state.items():
            self(name).bit_generator.state = inner


def derived(seed: int, name: str) -> int:
    """Return a named 31-bit seed, for libraries that take an integer."""
    return int(np.random.SeedSequence((seed, *name.encode())).generate_state(1)[0]) >> 1
