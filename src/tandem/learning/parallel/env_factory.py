"""Creation of environments in this or another process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tandem.envs.factory import EnvLike, environment_name, is_instance, vectorize
from tandem.envs.vector import Environments
from tandem.errors import SettingError


@dataclass(frozen=True)
class EnvFactory:
    """Factory of N environments, or a part of them; holds the arguments of `vectorize`."""

    env: EnvLike
    n: int
    seed: int
    mode: Any
    kwargs: Mapping[str, Any] | None
    spec: Any = None  # Gymnasium's spec of an id, since a script may have registered it
    beside: Mapping[str, Any] | None = None  # additional `info` entries of steps, as Leaf

    @classmethod
    def of(
        cls, env: EnvLike, n: int, seed: int, mode: Any, kwargs: Mapping[str, Any] | None
    ) -> EnvFactory:
        """Create a factory, with the spec of an id that is registered in this process."""
        spec = _registry().get(env) if isinstance(env, str) else None
        return cls(env, n, seed, mode, kwargs, spec)

    def make(self, first: int, count: int, generation: int = 0) -> Environments:
        """Make `count` environments from number `first`, with the same seeds as in the full set.
        Each `generation` has different seeds."""
        seed = generation_seed(self.seed, generation)
        if self.spec is not None:
            _registry().setdefault(self.env, self.spec)
        made = vectorize(self.env, count, seed, self.mode, self.kwargs, first=first)
        made.extra = {**made.extra, **(self.beside or {})}
        return made


def _registry() -> dict[str, Any]:
    import gymnasium  # here: most environments are not ids of Gymnasium

    return gymnasium.registry


def check_can_travel(env: EnvLike, asked: str) -> None:
    """Raise SettingError for an environment that cannot be sent to other processes. asked: the
    option that requires them."""
    if is_instance(env):
        raise SettingError(
            f"{asked} is not supported with {environment_name(env)}, an object of this process.",
            "an id, or a callable that creates the environment in any process",
            "pass its id, or a function that creates it.",
        )


def generation_seed(seed: int, generation: int) -> int:
    """Return the seed of environments after `generation` restarts; 0 is the run's seed."""
    if not generation:
        return seed
    return int(np.random.SeedSequence((seed, generation)).generate_state(1)[0])


def divide(n: int, processes: int) -> list[tuple[int, int]]:
    """Return (first, count) of each process's environments, divided as evenly as possible; the
    first process gets no more than the others."""
    small, larger = divmod(n, processes)
    sizes = [small + (i >= processes - larger) for i in range(processes)]
    return [(sum(sizes[:i]), size) for i, size in enumerate(sizes)]
