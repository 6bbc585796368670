"""A vector of environments whose observations count."""

from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

MODES, NEXT_STEP = tuple(AutoresetMode), AutoresetMode.NEXT_STEP


class Counters(VectorEnv):
    """Environment i has episodes of 2 to 5 steps, of which every other one is cut; the reward of a
    step is its number.

    dict_obs: observations are a Dict. masks: info says that action 0 is forbidden at even steps.
    gap: the last observations of SAME_STEP are missing. fails_at: the call of `step` that raises.
    """

    def __init__(
        self, num_envs=4, mode=NEXT_STEP, *, dict_obs=False, masks=False, gap=False, fails_at=0
    ) -> None:
        self.num_envs, self.mode = num_envs, mode
        self.metadata = {"autoreset_mode": mode}
        box = spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.single_observation_space: Any = spaces.Dict(count=box) if dict_obs else box
        self.single_action_space = spaces.Discrete(2)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.dict_obs, self.masks, self.gap, self.fails_at = dict_obs, masks, gap, fails_at
        self.calls, self.seeds, self.taken = 0, list[Any](), list[Any]()
        self.forbidden = 0  # how often a forbidden action was taken
        self.episode = self.count = np.zeros(num_envs, np.int64)
        self.over = np.zeros(num_envs, bool)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        which = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        if seed is not None:
            self.seeds.append(seed)
            self.generator = np.random.default_rng(seed)
            self.episode, self.count = -np.ones((2, self.num_envs), np.int64)
        self._open(which)
        return self._seen(), self._info()

    def step(self, actions: Any) -> Any:
        self.calls += 1
        if self.calls == self.fails_at:
            raise ZeroDivisionError("the simulator fell over")
        self.taken.append(np.array(actions))
        resets = self.over if self.mode is NEXT_STEP else np.zeros_like(self.over)
        assert self.mode is not AutoresetMode.DISABLED or not self.over.any()
        self.forbidden += int(((actions == 0) & (self.count % 2 == 0) & ~resets).sum())
        self.count = self.count + ~resets
        self._open(resets)
        reward = np.where(resets, 0, self.count).astype(np.float64)
        ended = ~resets & (self.count >= self.length())
        cut = ended & ((np.arange(self.num_envs) + self.episode) % 2 == 0)
        self.over, info = ended, {}
        if self.mode is AutoresetMode.SAME_STEP and ended.any():
            last, masks = self._seen(), self._info()
            self._open(ended)
            rows = np.full(self.num_envs, None, object)
            for i in np.flatnonzero(ended):
                rows[i] = {"count": last["count"][i]} if self.dict_obs else last[i]
            info = {} if self.gap else {"final_obs": rows, "_final_obs": ended.copy()}
            info |= {"final_info": masks} if self.masks else {}
        return self._seen(), reward, ended & ~cut, cut, self._info() | info

    def length(self) -> Any:
        return 2 + (np.arange(self.num_envs) + 3 * self.episode) % 4

    def _open(self, which: Any) -> None:
        self.episode = self.episode + which
        self.count = np.where(which, 0, self.count)
        self.over = self.over & ~which

    def _seen(self) -> Any:
        drawn = self.generator.random(self.num_envs)
        obs = np.stack([self.episode, self.count, drawn], 1).astype(np.float32)
        return {"count": obs} if self.dict_obs else obs

    def _info(self) -> dict[str, Any]:
        if not self.masks:
            return {}
        mask = np.ones((self.num_envs, 2), np.int8)
        mask[:, 0] = self.count % 2
        return {"action_mask": mask}


class Resumable(Counters):  # its state can be taken
    def get_state(self) -> Any:
        names = ("episode", "count", "over", "generator")
        return {name: getattr(self, name) for name in names}

    def set_state(self, state: Any) -> None:
        for name, value in state.items():
            setattr(self, name, value)
