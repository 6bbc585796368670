"""Pictures of states of Gymnasium's own environments, drawn by these."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import gymnasium
import numpy as np

from tandem.types import Array


def picture(name: str, state: Array) -> Array:
    """What the environment of an id of Gymnasium's shows in a state: uint8 [height, width, 3]."""
    env = _drawing(name)
    env.state = np.asarray(state, np.float64)
    return env.render()


@lru_cache(maxsize=4)
def _drawing(name: str) -> Any:
    env = gymnasium.make(name, render_mode="rgb_array").unwrapped
    env.reset(seed=0)
    return env
