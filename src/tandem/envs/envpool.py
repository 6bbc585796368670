"""EnvPool vector environments (https://envpool.readthedocs.io), by ids such as "envpool/Pong-v5".
Requires EnvPool."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import numpy as np

from tandem.envs import atari
from tandem.errors import EngineError, SettingError, UnknownNameError
from tandem.types import Array, EnvKwargs, Info, JSONDict

PREFIX = "envpool/"
# name in `atari.Preprocessing` -> name in EnvPool; rewards are never clipped by EnvPool
ATARI = {
    "frame_stack": "stack_num",
    "frame_skip": "frame_skip",
    "noop_max": "noop_max",
    "press_fire": "use_fire_reset",
    "life_loss_ends": "episodic_life",
}


def is_id(env: object) -> bool:
    """Return true for an EnvPool id."""
    return isinstance(env, str) and env.startswith(PREFIX)


def is_atari(env: str) -> bool:
    """Return true for the id of an Atari game. Raises EngineError if EnvPool is not installed,
    UnknownNameError for an id unknown to EnvPool."""
    return "episodic_life" in _config(env)


def clips(kwargs: EnvKwargs | None) -> bool:
    """Return true if learners receive clipped rewards."""
    return atari.split(kwargs)[0].clip_rewards


def make_vector(env: str, num_envs: int = 1, seed: int = 0, **kwargs: Any) -> EnvPoolVectorEnv:
    """Make the vector of an id, with fixed seeds.

    kwargs: EnvPool's arguments, such as num_threads=4. For Atari games, also the fields of
      `atari.Preprocessing`, with the same meaning as for ale_py ids. Raises SettingError for
      unknown arguments.
    """
    game, given = is_atari(env), dict(kwargs)
    if game:
        does, given = atari.split(kwargs)
        given |= {theirs: getattr(does, ours) for ours, theirs in ATARI.items()}
        if does.sticky_actions >= 0:
            given["repeat_action_probability"] = does.sticky_actions
    unknown = [name for name in given if name not in _config(env)]
    if unknown:
        raise SettingError(
            f"{env} does not accept {', '.join(unknown)}.",
            f"EnvPool's arguments: {', '.join(_config(env))}",
            f"leave {', '.join(unknown)} out of env_kwargs= (--env-kwargs).",
        )
    pool = _library(env).make_gymnasium(
        env.removeprefix(PREFIX), num_envs=num_envs, seed=seed, **given
    )
    return EnvPoolVectorEnv(env, pool, int(given.get("stack_num", 1)) if game else 1)


class EnvPoolVectorEnv:
    """EnvPool vector with fixed seeds. Images from before the start of an episode are zeros in
    stacks, as everywhere in tandem (EnvPool repeats the first image), so that a replay buffer
    stores each image once."""

    def __init__(self, name: str, pool: Any, stack: int) -> None:
        self._pool, self._stack, self.num_envs = pool, stack, int(pool.num_envs)
        self.metadata = dict(pool.metadata)
        self.single_observation_space = pool.single_observation_space
        self.single_action_space = pool.single_action_space
        self.spec = SimpleNamespace(
            id=name, max_episode_steps=int(pool.config.get("max_episode_steps") or 0)
        )
        self._ages = np.full(self.num_envs, stack)  # images of the current episode per stack
        self._ended = np.ones(self.num_envs, np.bool_)
        if stack > 1:
            self.single_observation_space.stack = stack

    def reset(self, *, seed: int | None = None, options: object = None) -> tuple[Array, Info]:
        """Start all episodes. `seed` is ignored, since the pool's seed is fixed at creation."""
        obs, info = self._pool.reset()
        self._ended[:] = True
        return self._padded(obs), info

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, Info]:
        obs, reward, terminated, truncated, info = self._pool.step(actions)
        obs = self._padded(obs)
        if self._stack > 1:
            np.logical_or(terminated, truncated, out=self._ended)
        return obs, reward, terminated, truncated, info

    def close(self) -> None:
        self._pool.close()

    def _padded(self, obs: Array) -> Array:
        k = self._stack
        if k == 1:
            return obs
        np.minimum(self._ages + 1, k, out=self._ages)
        for i in np.flatnonzero(self._ended).tolist():
            # after a lost life the game continues, and its stack is kept
            if (obs[i, 1:] == obs[i, :1]).all():
                self._ages[i] = 1
        if (young := np.flatnonzero(self._ages < k)).size:
            obs = np.array(obs)
            for i in young.tolist():
                obs[i, : k - self._ages[i]] = 0
        return obs


def _config(env: str) -> JSONDict:
    """Return the arguments of an id, with their defaults."""
    library, name = _library(env), env.removeprefix(PREFIX)
    known = library.list_all_envs()
    if name not in known:
        raise UnknownNameError("EnvPool environment", env, [PREFIX + other for other in known])
    return dict(library.make_spec(name).config._asdict())


def _library(env: str) -> Any:
    try:
        return importlib.import_module("envpool")
    except ImportError as error:
        raise EngineError(
            f"the environment {env} needs EnvPool, which is not installed: {error}",
            "the package envpool",
            "pip install envpool",
        ) from error
