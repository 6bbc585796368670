"""Actors without a network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


class Acts:
    """Acts by a function of what is seen and of its noise."""

    def __init__(self, by: Callable[[Any, Any], Any]) -> None:
        self.by = by

    def initial_state(self, n: int) -> Any:
        return ()

    def act(self, obs: Any, state: Any, noise: Any) -> Any:
        return self.by(obs, noise), {}, state


def always(action: Any) -> Acts:
    """An actor that sees arrays, and always takes this action."""
    return Acts(lambda obs, noise: np.array([action] * len(obs)))
