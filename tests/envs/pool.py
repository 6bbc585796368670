"""EnvPool's documented interface (https://envpool.readthedocs.io), for tests without it."""

from collections import namedtuple
from types import SimpleNamespace
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

COMMON = {"num_envs": 1, "batch_size": 1, "num_threads": 0, "seed": 42, "max_episode_steps": 12}
GAME = COMMON | {"stack_num": 4, "frame_skip": 4, "noop_max": 30, "episodic_life": False}
GAME |= {"reward_clip": False, "use_fire_reset": True, "repeat_action_probability": 0.0}
IDS = {"Pong-v5": GAME, "CartPole-v1": COMMON}


def list_all_envs() -> list[str]:
    return list(IDS)


def make_spec(task_id: str) -> Any:
    config = IDS[task_id]
    return SimpleNamespace(config=namedtuple("Config", config)(**config))


def make_gymnasium(task_id: str, **given: Any) -> Any:
    return Pool(task_id, IDS[task_id] | given)


class Pool(VectorEnv):
    """A life lasts 3 steps and scores 2, a game has two lives, over which its pictures go on."""

    def __init__(self, task_id: str, config: dict[str, Any]) -> None:
        self.config, self.num_envs = config, config["num_envs"]
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        self.stack = config.get("stack_num", 0)
        self.single_observation_space = (
            spaces.Box(0, 255, (self.stack, 6, 6), np.uint8)
            if self.stack
            else spaces.Box(-9, 9, (4,), np.float64)
        )
        self.single_action_space = spaces.Discrete(2)
        self.generator = np.random.default_rng(config["seed"])
        self.over = np.ones(self.num_envs, bool)
        self.time = np.zeros(self.num_envs, int)
        self.pictures = np.zeros((self.num_envs, max(self.stack, 1), 6, 6), np.uint8)

    @property
    def is_async(self) -> bool:
        return 1 < self.config["batch_size"] < self.num_envs

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        assert seed is None, "EnvPool says that it is ignored"
        self._open(np.ones(self.num_envs, bool))
        return self._seen(), self._info()

    def step(self, actions: Any) -> Any:
        assert len(actions) == self.num_envs
        resets, lives = self.over, bool(self.config.get("episodic_life"))
        self.time = self.time + ~resets
        fresh = resets & ((self.time >= 6) | (not lives))
        moved = np.concatenate([self.pictures[:, 1:], self._draw()[:, None]], 1)
        self.pictures[~fresh] = moved[~fresh]
        self._open(fresh)
        life = ~resets & (self.time % 3 == 0)
        self.over = life & ((self.time >= 6) | lives)
        reward = np.where(life, 2.0, 0.0).astype(np.float32)
        return self._seen(), reward, self.over.copy(), np.zeros_like(self.over), self._info()

    def _draw(self) -> Any:
        return self.generator.integers(1, 256, (self.num_envs, 6, 6), np.uint8)

    def _open(self, which: Any) -> None:
        self.time = np.where(which, 0, self.time)
        self.over = self.over & ~which
        drawn = self._draw()
        self.pictures[which] = drawn[which][:, None]

    def _seen(self) -> Any:
        return self.pictures.copy() if self.stack else self.pictures[:, 0, 0, :4] / 100.0

    def _info(self) -> Any:
        return {"env_id": np.arange(self.num_envs), "elapsed_step": self.time}
