"""Rendering of states of Gymnasium's built-in environments."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import gymnasium
import numpy as np

from tandem.types import Array


def picture(name: str, state: Array) -> Array:
    """Render a state with the Gymnasium environment of an id: uint8 [height, width, 3]."""
    env = _drawing(name)
    env.state = np.asarray(state, np.float64)
    return env.render()


@lru_cache(maxsize=4)
def _drawing(name: str) -> Any:
    env = gymnasium.make(name, render_mode="rgb_array").unwrapped
    env.reset(seed=0)
    return env
