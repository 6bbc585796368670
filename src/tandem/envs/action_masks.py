"""The one place where masks that an environment gives in `info` become a part of what it shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

from tandem.envs.tensors import bits_of
from tandem.spaces import MASK, leaf
from tandem.types import Array, Info, Tree


class Masked(gymnasium.Wrapper, RecordConstructorArgs):  # type: ignore[misc]
    """Observations are a Dict with `info["action_mask"]` as its entry `action_mask`; the
    environment's own is the entry `obs`, or, if that is a Dict, its entries. The last info of a
    terminated episode needs no mask: no action follows."""

    def __init__(self, env: Any) -> None:
        RecordConstructorArgs.__init__(self)
        gymnasium.Wrapper.__init__(self, env)
        inner = env.observation_space
        self._plain = not isinstance(inner, spaces.Dict)
        self._bits = spaces.MultiBinary(leaf(env.action_space).width)
        self.observation_space = spaces.Dict(
            {**({"obs": inner} if self._plain else inner.spaces), MASK: self._bits}
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Tree, Info]:
        obs, info = self.env.reset(seed=seed, options=options)
        return self._shown(obs, info, False), info

    def step(self, action: Array) -> tuple[Tree, float, bool, bool, Info]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        return self._shown(obs, info, terminated), reward, terminated, truncated, info

    def _shown(self, obs: Tree, info: Info, terminated: bool) -> dict[str, Any]:
        mask = info.get(MASK)
        if mask is None and not terminated:
            raise ValueError(f"info has no {MASK!r} here, and had one after the first reset")
        bits = np.ones(self._bits.shape, np.int8) if mask is None else bits_of(mask)
        return {**({"obs": obs} if self._plain else obs), MASK: bits}


def with_masks(envs: Sequence[Any]) -> list[Any]:
    """Returns environments of one kind, wrapped if they give masks in `info`; to find out, the
    first one is reset."""
    return [Masked(env) for env in envs] if gives_masks(envs[0]) else list(envs)


def gives_masks(env: Any) -> bool:
    """Whether `info` has masks of discrete actions after a reset, and the observation has none."""
    if not isinstance(env.action_space, (spaces.Discrete, spaces.MultiDiscrete)):
        return False
    if isinstance(env.observation_space, spaces.Dict) and MASK in env.observation_space.spaces:
        return False
    try:
        return MASK in env.reset(seed=0)[1]
    except Exception:  # it will be raised again, and told in full, where it is stepped
        return False
