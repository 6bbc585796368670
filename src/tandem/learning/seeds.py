"""One seed, many independent streams of randomness, each by its name, so that adding one changes no
other."""

from __future__ import annotations

import numpy as np

from tandem.types import JSONDict


class Generators:
    """NumPy generators by name, made when first asked for, saved and restored together."""

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
        """As JSON data."""
        return {name: g.bit_generator.state for name, g in self._generators.items()}

    def load_state(self, state: JSONDict) -> None:
        for name, inner in state.items():
            self(name).bit_generator.state = inner


def derived(seed: int, name: str) -> int:
    """A seed of 31 bits for something that takes an integer."""
    return int(np.random.SeedSequence((seed, *name.encode())).generate_state(1)[0]) >> 1
