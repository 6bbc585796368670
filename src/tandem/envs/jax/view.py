"""Adapter from one functional environment to a Gymnasium environment."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import gymnasium
import jax
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from tandem.envs.jax.host import processor
from tandem.envs.jax.protocol import FunctionalEnv
from tandem.envs.jax.vector import NEVER, FunctionalVector, programs
from tandem.spaces import in_space
from tandem.types import Array, Info, JSONDict, Tree


class FunctionalView(gymnasium.Env):  # type: ignore[misc]
    """Functional environment with Gymnasium's stateful `reset` and `step`, for playing, watching
    and checking. Equal seeds give the same episodes as in a `FunctionalVector`, unless initial
    states come from a pool.

    Images come from the environment's `render(state)`, uint8 [height, width, 3], at its
    `render_fps`.
    """

    masks_are_observed = True

    def __init__(self, name: str, env: FunctionalEnv, render_mode: str | None = None) -> None:
        self.functional, self.name, self.render_mode = env, name, render_mode
        self._programs = programs(name, env)
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self._limit = int(env.max_episode_steps) or NEVER
        self._now: Any = None
        self._number = np.zeros(1, np.uint32)  # seed of the episode
        draws = callable(getattr(env, "render", None))
        self.metadata = {
            "render_modes": ["human", "rgb_array"] if draws else [],
            "render_fps": int(getattr(env, "render_fps", 30)),
        }
        self.spec = EnvSpec(
            re.sub(r"[^\w./-]", "_", name),
            entry_point=lambda render_mode=None: FunctionalView(name, env, render_mode),
            max_episode_steps=int(env.max_episode_steps) or None,
            disable_env_checker=True,
        )

    def together(
        self,
        n: int,
        seed: int = 0,
        first: int = 0,
        next_seed: Callable[[int, int], int] | None = None,
        budget: int = 0,
    ) -> FunctionalVector:
        """Return a vector of n copies, stepped by one call; see `FunctionalVector`."""
        return FunctionalVector(self.name, self.functional, n, seed, first, next_seed, budget)

    def reset(
        self, *, seed: int | None = None, options: JSONDict | None = None
    ) -> tuple[Tree, Info]:
        super().reset(seed=seed)
        number = int(self.np_random.integers(2**31)) if seed is None else seed
        self._number = np.array([number % 2**32], np.uint32)
        with processor():
            self._now = self._programs.begin(self._number, ())
            return self._seen(), {}

    def step(self, action: Tree) -> tuple[Tree, float, bool, bool, Info]:
        with processor():
            taken = jax.tree.map(lambda x: np.asarray(x)[None], action)
            self._now, outcome = self._programs.move(
                self._number, self._now, taken, np.int32(self._limit)
            )
            over, last = bool(outcome.terminated[0]), bool(outcome.last[0])
            return self._seen(), float(outcome.reward[0]), over, last and not over, {}

    def render(self) -> Array | None:
        if self.render_mode is None:
            return None
        with processor():
            return self.functional.render(jax.tree.map(lambda x: x[0], self._now.state))  # type: ignore[attr-defined]

    def __deepcopy__(self, memo: dict[int, object]) -> FunctionalView:
        """Copy the view. The copies share the state, which is immutable, and the functions."""
        new = FunctionalView(self.name, self.functional, self.render_mode)
        new._now, new._number = self._now, self._number
        new._np_random = copy.deepcopy(self._np_random, memo)
        new._np_random_seed = self._np_random_seed
        return new

    def _seen(self) -> Tree:
        obs = jax.tree.map(lambda x: np.array(x[0]), self._now.obs)
        return in_space(self.observation_space, obs, _typed)


def _typed(space: spaces.Space, x: Array) -> Array:
    """Convert a number or an array to the dtype of its space."""
    if isinstance(space, spaces.Discrete):
        return space.dtype.type(x)
    return np.asarray(x, space.dtype)
