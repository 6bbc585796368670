"""An environment's own vector entry point (Gymnasium's `vector_entry_point`)."""

from __future__ import annotations

from typing import Any

from tandem.envs.vector_env import VectorEnvironments
from tandem.envs.vector_state import snapshot
from tandem.errors import ResumeError


class Native(VectorEnvironments):
    """The vector that an id is registered with.

    The whole vector has one generator, seeded once; its episodes have no seeds of their own. Its
    state is taken by copying its attributes, which works where they are arrays, numbers, strings,
    containers of these, and NumPy generators.
    """

    def __init__(self, name: str, envs: Any, seed: int = 0, first: int = 0) -> None:
        super().__init__(name, envs, seed, first)
        try:
            snapshot(envs, {})
            self.resumable = True
        except ResumeError:
            self.resumable = False

    def _instead(self) -> str:
        return "train with mode='plain', which replays episodes instead."
