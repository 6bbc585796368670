"""The algorithms: one file for one paper, by the names users call them; `base` is what all share.
Each is written once for all frameworks, against `backends.backend`. May import the ground, `math`,
`networks`, `exploration`, `backends`; not `replay`: an algorithm is handed batches."""

from __future__ import annotations

import importlib
from typing import Any

from tandem.errors import UnknownNameError
from tandem.settings import Schedule

__all__ = ["NAMES", "Schedule", "get"]

NAMES = {
    "a2c": "A2C",
    "a3c": "A3C",
    "acer": "ACER",
    "ddpg": "DDPG",
    "dqn": "DQN",
    "impala": "IMPALA",
    "maddpg": "MADDPG",
    "mappo": "MAPPO",
    "nstep_q": "NStepQ",
    "ppo": "PPO",
    "qmix": "QMIX",
    "sac": "SAC",
    "td3": "TD3",
    "trpo": "TRPO",
    "vdn": "VDN",
}  # module -> class


def get(name: str) -> Any:
    """The Algorithm class of that name."""
    if not isinstance(name, str) or name not in NAMES:
        raise UnknownNameError("algorithm", name, NAMES)
    return getattr(importlib.import_module(f"tandem.algorithms.{name}"), NAMES[name])
