"""Environments as they are made, here or in another process."""

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
    """Makes N environments, or some of them: the arguments of `vectorize`."""

    env: EnvLike
    n: int
    seed: int
    mode: Any
    kwargs: Mapping[str, Any] | None
    spec: Any = None  # Gymnasium's, of an id that a script may have registered itself
    beside: Mapping[str, Any] | None = None  # entries of `info` that steps bring, as Leaf

    @classmethod
    def of(
        cls, env: EnvLike, n: int, seed: int, mode: Any, kwargs: Mapping[str, Any] | None
    ) -> EnvFactory:
        """With the spec of an id that Gymnasium knows here."""
        import gymnasium

        spec = gymnasium.registry.get(env) if isinstance(env, str) else None
        return cls(env, n, seed, mode, kwargs, spec)

    def make(self, first: int, count: int, generation: int = 0) -> Environments:
        """`count` of them from number `first` on, with the seeds that they have among all; each
        `generation` has seeds of its own."""
        seed = generation_seed(self.seed, generation)
        if self.spec is not None:
            import gymnasium

            gymnasium.registry.setdefault(self.env, self.spec)
        made = vectorize(self.env, count, seed, self.mode, self.kwargs, first=first)
        made.extra = {**made.extra, **(self.beside or {})}
        return made


def check_can_travel(env: EnvLike, asked: str) -> None:
    """SettingError for an environment that cannot be in several processes, which were asked for."""
    if is_instance(env):
        raise SettingError(
            f"{asked} is not supported with {environment_name(env)}, an object of this process.",
            "an id, or a callable that creates the environment in any process",
            "pass its id, or a function that creates it.",
        )


def generation_seed(seed: int, generation: int) -> int:
    """The seed of environments that were restarted `generation` times: the run's own at first."""
    if not generation:
        return seed
    return int(np.random.SeedSequence((seed, generation)).generate_state(1)[0])


def divide(n: int, processes: int) -> list[tuple[int, int]]:
    """(first, count) of each process's environments, as even as can be; the first process has no
    more than the others."""
    small, larger = divmod(n, processes)
    sizes = [small + (i >= processes - larger) for i in range(processes)]
    return [(sum(sizes[:i]), size) for i, size in enumerate(sizes)]
